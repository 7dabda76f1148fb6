"""A module that takes longer to import than any test may."""

import time

time.sleep(60)
