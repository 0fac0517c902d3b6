"""Every configuration that must pass the common tests: name -> config. Each paper lists its own in cases_<paper>.py."""

from diptych.matchers.catalog import MatcherConfig
from tests.matchers import cases_camp, cases_dive, cases_mmca, cases_scan, cases_vse

CASES: dict[str, MatcherConfig] = {
    **cases_vse.CASES,
    **cases_scan.CASES,
    **cases_camp.CASES,
    **cases_mmca.CASES,
    **cases_dive.CASES,
}
