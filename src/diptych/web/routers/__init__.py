"""The JSON interface, a file for each tag of the OpenAPI document."""
