from tests.support.families import family_folder

__all__ = ["family_folder"]
