"""Every bound of the system, with the reason for each. Nothing else may invent a number of this kind."""

from __future__ import annotations

# --- requests and messages [promises S16]
MAX_BODY = 8 * 1024 * 1024
MAX_BULK_BODY = 64 * 1024 * 1024
MAX_DEPTH = 32
MAX_DIGITS = 64
MAX_PAGE = 1_000
MAX_ECHO = 80  # characters of a caller's input that an error may repeat

# --- what one submission may hold
MAX_SPECS = 10_000
MAX_ELEMENTS = 10_000_000
MAX_PARAMS = 32
MAX_NAME = 256  # bytes
MAX_ARGV_ITEMS = 10_000
MAX_ARGV_BYTES = 1024 * 1024
MAX_ENV_ITEMS = 1_000
MAX_ENV_BYTES = 1024 * 1024
MAX_LABELS = 32
MAX_PARENTS = 1_000
MAX_FILES = 1_000
MAX_KEY = 128
MAX_CORES = 65_536
MAX_RETRIES = 100
MAX_PRIORITY = 1e9
MAX_BYTES = 1 << 60
MAX_SECONDS = 10 * 365 * 86_400.0

# --- conversation between pilot and server [contract 5]
MAX_LEASES = 100  # tasks per reply
MAX_HELD = 10_000
MAX_REPORTS = 2_000  # per exchange; the rest ride on the next one
MAX_IN_FLIGHT = 2
KEPT_REPLIES = 2
MAX_TAGS = 256
MAX_TAG_BYTES = 4_096
MAX_TAIL = 64 * 1024  # log bytes per stream and exchange
MAX_STDERR_TAIL = 4_096  # carried in the report of a failure
MAX_LINE = 4_096  # last stdout line kept with a result
MAX_STREAM = 1024 * 1024  # kept per stream, head and tail, with a mark between

# --- pilots that die under a task [promises I11]
POISON_LOSSES = 3
