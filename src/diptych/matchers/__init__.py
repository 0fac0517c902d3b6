"""The matchers: one interface, one file a paper."""
