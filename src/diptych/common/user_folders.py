"""The platform's folders for what this program keeps of a user."""

from pathlib import Path

APPLICATION = "diptych"


def data_folder() -> Path:
    """Where a user's data is; on Linux `~/.local/share/diptych`, or where XDG_DATA_HOME says."""
    from platformdirs import user_data_path  # training needs none of this

    return user_data_path(APPLICATION, appauthor=False)


def cache_folder() -> Path:
    """Where what can be made again is; on Linux `~/.cache/diptych`, or where XDG_CACHE_HOME says."""
    from platformdirs import user_cache_path

    return user_cache_path(APPLICATION, appauthor=False)


def config_folder() -> Path:
    """Where a user's settings are; on Linux `~/.config/diptych`, or where XDG_CONFIG_HOME says."""
    from platformdirs import user_config_path

    return user_config_path(APPLICATION, appauthor=False)
