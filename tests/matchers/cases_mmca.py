"""Configurations of this matcher that the common tests run on."""

from diptych.matchers.catalog import MatcherConfig

CASES: dict[str, MatcherConfig] = {}
