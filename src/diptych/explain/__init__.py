"""Why a pair matches: arrays first, pictures second."""
