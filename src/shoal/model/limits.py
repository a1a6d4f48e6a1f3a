"""Every bound of the system, with the reason for each. No other module may define one."""

from __future__ import annotations

# --- requests and messages [security S16]
MAX_BODY = 8 * 1024 * 1024
MAX_BULK_BODY = 64 * 1024 * 1024
MAX_VALUES = 2_000_000  # commas and opening brackets of a body: some 200 MB when decoded, in a fifth of a second
MAX_SMALL_BODY = 256 * 1024  # a larger one is decoded off the event loop: this much takes some 10 ms
MAX_BODIES = 256 * 1024 * 1024  # bytes of bodies in memory at once, of all people, and again of all pilots
MAX_BODIES_OWNER = 128 * 1024 * 1024  # of them of one owner
MAX_DEPTH = 32
MAX_DIGITS = 64
MAX_PAGE = 1_000
MAX_WAIT = 30  # seconds that an answer is held until something changes
MAX_LOOK = 100_000  # events read per query: a search for few among many returns and is continued
MAX_ECHO = 80  # characters of a caller's input that an error may repeat

# --- admission control and rate limits [security S16; promise I21]
MAX_CONNECTIONS = 24_000  # ten thousand pilots of one owner with two connections each, and as many again for others
MAX_UNKNOWN = 100  # connections of one address that presented no valid token
MAX_PER_KEY = 128  # connections of one person with all their tokens, or of one pilot: nobody may use them up
MAX_POOL_RATIO = 8  # connections of one owner's or group's pilots, for each that is still free: at most 8 of 9
MAX_WORK_PER_KEY = 64  # requests in progress of one person, or of one pilot
MAX_WORK_PER_POOL = 2_048  # of all pilots of one owner or group
MAX_PEOPLE_WORK = 512  # of all people together: the rest of the capacity is for pilots
MAX_LOOKS = 16  # queries that wait for the database reader: some tenths of a second of work
MAX_BUCKETS = 10_000  # credentials whose rate is remembered, of each kind
MAX_RATE_PEOPLE = 200  # requests per second of one person with all their tokens; the burst is five times as large
MAX_RATE_CALLS = 2_000  # additions to open runs and queries of their results of one person: two for each single call
MAX_RATE_PILOT = 2_000  # of one pilot: two in flight bound it anyway
MAX_RATE_POOL = 10_000  # of all pilots of one owner or group
MAX_RATE_ENROL = 100  # a site may start a thousand pilots within a minute
MAX_RATE_UNKNOWN = 10  # failed authentications of one address

# --- blobs [protocol 6]
MAX_BLOB = 1 << 40  # bytes of one
MAX_PARTS = 32  # incomplete uploads of one owner, in progress or broken off
MAX_UPLOADS = 256  # in progress at once, of all owners: each holds some 2 MiB

# --- the server's disk [promise I10]
MAX_RESERVE = 64 * 1024 * 1024  # bytes kept for reports of running work: ten thousands of them
MAX_RESERVE_EMBEDDED = 16 * 1024 * 1024  # of a server with one machine's tasks
RESERVE_SHARE = 8  # or this part of a smaller disk

# --- people
MAX_USERS = 10_000
MAX_TOKENS = 100_000
MAX_SITES = 20_000  # names that belong to somebody
MAX_SITES_OWNER = 200  # of them that one owner or group may register; an administrator may assign more
MAX_TOKENS_OWNER = 1_000  # valid ones of one owner or group: revoked and expired ones do not count
MAX_LINEAGE = 16  # tokens of which each was made with the one before it
MAX_PILOTS = 100_000  # that one enrolment token admits

# --- one submission
MAX_SPECS = 100_000  # a workflow of so many vertices: some 50 MB as JSON
MAX_TARGETS = 10_000  # runs and tasks that one call of cancel, retry or set names
MAX_ADDED = (
    10_000  # tables that a client adds to an open run at once: whoever waits for the first of them waits for all
)
MAX_ELEMENTS = 10_000_000
MAX_FILES_COMPARED = 200_000  # names of files of one table that are compared with those of others, to find who waits
MAX_TIED = 10_000  # tasks of a sweep that wait for those of another one by one; of more, for all of them
MAX_EDGES = 2_000_000  # between single tasks, of a run that is exported as a graph: some 300 MB as objects
MAX_PARAMS = 32
MAX_PARAM_BYTES = 4_096  # of one value
MAX_NAME = 256  # bytes
MAX_ARGV_ITEMS = 10_000
MAX_ARGV_BYTES = 1024 * 1024
MAX_ENV_ITEMS = 1_000
MAX_ENV_BYTES = 1024 * 1024
MAX_LABELS = 32
MAX_PARENTS = 10_000
MAX_OUTSIDE = 1_000  # runs and tasks of other runs that one submission waits for
MAX_FILES = 1_000
MAX_CONTENT = 20_000  # files of one table whose content goes along
MAX_KEPT_OUTPUTS = 100_000  # of one run that tasks of it may read: some 30 MB of memory
MAX_DIRECTORY = 2_000  # files of one directory that is an input: each is named in every lease
MAX_FAILED_PLACES = 10  # that one report names: places that did not give a file
MAX_PLACE_TEXT = 500  # characters of such a place, and of why
MAX_KEPT_FILES = 2_000  # that one task leaves on the server or stores; their names must find place in its result, too
MAX_KEY = 128
MAX_FINGERPRINTS = 20  # files of a run that `--resume` can name when they changed; of more, one digest of all
MAX_COMPARED = 20_000  # tasks of a sweep whose files `--resume` compares one by one; of more, those of all together
FINGERPRINT_WIDTH = 8  # characters for each file that a task of a sweep names
MAX_ELEMENT_TEXTS = 4 * 1024 * 1024  # characters of all of them
MAX_VISIBLE = 8  # paths of a task that a pilot must see
MAX_WITNESSES = 16  # files whose look proves that a path is seen
MAX_BLIND = 1_000  # sets of paths of which it is known that a pilot does not see them
MAX_CORES = 65_536
MAX_RETRIES = 100
MAX_CODES = 64  # exit codes that a field of a task names
MAX_PRIORITY = 1e9
MAX_INLINE = 64 * 1024  # bytes of a payload inside a message; a larger one is a blob
MAX_SHOWN_RESULT = 8 * 1024  # bytes of a pickled result that rows of tasks show; larger ones only the caller gets
MAX_MODULES = 32 * 1024 * 1024  # bytes of the sources that travel with a session: a million lines
MAX_UNLOADED = 100  # modules of them that are named, but not loaded: each is looked at with every call
MAX_RESULTS = 10_000  # of one results call
MAX_RECENT = 100_000  # final tasks of an open run kept in memory for clients that follow it
MAX_RECENT_BYTES = 64 * 1024 * 1024
MAX_CALLS = 100_000  # calls of one function in one table
MAX_SETUP = 100  # lines
MAX_CHECKPOINT = 16  # files
MAX_CHECKPOINT_BYTES = (
    1 << 30
)  # of all files of one that is uploaded while its task runs; a larger one is kept at the end
MIN_CHECKPOINT_EVERY = 1.0  # seconds
MAX_LICENCES = 16  # of one task
MAX_ORDERED = 1_000_000  # elements of an array with an order of its own
MAX_NESTED = 64  # runs inside tasks inside runs: each level is a process that waits
MAX_WAITING = 256  # tasks of one pilot that wait for others; each keeps its process and memory
MAX_LENT_TO_NEW = 32  # of them, beyond which lent cores go only to tasks that other tasks wait for
MAX_BYTES = 1 << 60
MAX_SECONDS = 10 * 365 * 86_400.0
MAX_TIME = 253_402_300_799.0  # the last second of the year 9999: later times cannot be shown as a date
MAX_WHOLE = 2**53 - 1  # of numbers in JSON: other languages read a larger one inexactly; databases stop at 2**63

# --- expressions [input E30]
MAX_EXPR_BYTES = 4_096
MAX_EXPR_TERMS = 500  # nodes of the tree
MAX_EXPR_DEPTH = 32
MAX_GLOB = 256  # characters of a pattern: its time on one text is the product of both lengths

# --- exchanges between pilot and server [protocol 5]
MAX_LEASES = 100  # tasks per reply, where each of them has a lease of its own
MAX_CHUNK = 400  # tasks per reply, where they are neighbours that share one lease; more than 100 only if that is short
MAX_CHUNK_CALLS = 256 * 1024  # bytes of the calls in a lease of more than 100
MAX_HELD = 10_000
MAX_PROOFS = 1_000  # of leases, per exchange
MAX_REPORTS = 2_000  # per exchange; the rest are sent with the next one
MAX_ELEMENT = 10**18 - 1  # the highest element that an attempt's name can hold
MAX_SIGNAL = 64
MAX_IN_FLIGHT = 2
KEPT_REPLIES = 2
MAX_TAGS = 256
MAX_TAG_BYTES = 4_096
MAX_TAG_NUMBER = 1 << 64  # of a whole number: expressions convert it to a float, which has a bound
MAX_TASK_TAGS = 64  # that the tasks of one owner may publish on a pilot
MAX_TASK_TAG = 256  # bytes of one
MAX_TAIL = 64 * 1024  # log bytes of one part
MAX_TAILS = 64  # parts per exchange
MAX_STDERR_TAIL = 4_096  # carried in the report of a failure
MAX_LINE = 4_096  # last stdout line kept with a result
MAX_STREAM = 1 << 30  # kept per stream unless the task says otherwise: head and tail, with a mark between
MIN_STREAM = 4_096  # a smaller bound would hold little more than the mark
MAX_LOG_PART = 1024 * 1024  # of a stream in one answer: whoever reads a long one asks for it part by part
MAX_STDIN = 1 << 30  # bytes of standard input that are sent with a task
MAX_STREAM_FILES = 100_000  # files of `stdout` and `stderr` that are compared one by one when a run is submitted
STREAMS_KEPT = 10_000  # streams on their way from other hosts whose sizes the server remembers

# --- partial results [ADR 0053]
MAX_EMITTED_NAME = 64  # characters
MAX_EMITTED_NAMES = 64  # names of one attempt
MAX_RUN_NAMES = 256  # names of a run: what there are more is left out, and counted
MAX_EMITTED_TEXT = 256  # characters of a text that is kept, and of a reducer
MAX_EMITTED_LINE = 256 * 1024  # bytes of one line: a list of some ten thousand numbers
MAX_EMITTED = 1024 * 1024  # bytes that one attempt may emit: some 100,000 values, read in some tenths of a second
MAX_CONTRIBUTION = 16 * 1024  # characters of what one attempt emitted, reduced
MAX_EMITS = 64  # attempts whose values one exchange brings while they run
MAX_BINS = 1_000  # of a histogram
MAX_BEST = 1_000  # values that are kept themselves
MAX_EXACT_BITS = 4_400  # of a sum of squares: twice the range of floats, and as many more as 2**53 values take
MAX_LIVE_EMITTED = 10_000  # running attempts of one run whose values are kept

# --- rules that make tasks of files [ADR 0058]
MAX_RULES = 32  # of one run
MAX_RULE_TEXT = 64 * 1024  # characters of them together, as JSON
MAX_GROWN = 100_000  # files that the rules of one run have taken
MAX_TOLD_FILES = 1_000  # named in one call

# --- notices [ADR 0054]
MAX_NOTIFY = 4  # targets of one run
MAX_NOTIFY_TEXT = 2_048  # bytes of one
MAX_NOTIFY_HOSTS = 1_000  # that a policy allows

MAX_PEEK = 256 * 1024  # bytes of a running task's file in one answer
MAX_ENTRIES = 1_000  # of a directory in one answer
MAX_FILE_ANSWERS = 4  # per exchange, some 1.4 MiB encoded
MAX_PEEKS = 16  # questions about files that one pilot has not answered yet
PEEK_WAIT = 10.0  # seconds that an answer of a pilot is waited for

MAX_ORDERS = 1_000  # per reply; the rest are sent with the next one
GONE_KEPT = 10_000  # pilots that ended lately and may register again for what they held
HOSTS_KEPT = 20_000  # hosts remembered, those with the latest pilots
ENROLLED_KEPT = 1_000  # registrations whose answer is repeated if it was lost
ENDED_KEPT = 1_000  # attempts of a pilot whose last log output may still come after their report

# --- files in the caches of hosts, and tasks that read them [CMS IV.E]
MAX_CATALOGUE = 20_000  # files that the server remembers of one pilot's cache
MAX_CATALOGUED = 2_000_000  # of all pilots together: some 500 MB
MAX_CACHE_CHANGES = 1_000  # of a cache, per exchange: some 100 kB
MAX_PRICE = 1e6  # of a core hour at a site, in whatever unit
MIN_PLANNING = 1.0  # seconds between two plans of where tasks go
MAX_PLANNING = 3_600.0
MAX_PLANNED_CLASSES = 300  # classes of tasks that a plan looks at; of more, the first of each owner's
MAX_PLANNED_SITES = 64  # sites that a plan looks at
MAX_WEATHERS = 1_000  # sites, by owner or group, whose weather is remembered; of more, those seen last
MAX_INDEXED = 200_000  # tasks of one array whose own inputs are looked up; of a larger one only what all tasks read
MAX_CANDIDATES = 64  # ready tasks that are compared by their data for one request [ADR 0011]
MAX_READERS = 4  # of them that are compared for one file: those that read it alone are as good as any
MAX_COMPARED_CACHES = 16  # caches with inputs of one task that are looked at before it is given to another host
MAX_OVERTAKEN = 64  # tasks in a row that go before the first of their class, since their data is at hand
MAX_HOLDERS = 3  # of one file that are named in a lease
MAX_HELD_BACK = 10_000  # tasks of which it is remembered since when they wait for their data
MAX_DATA_WAIT = 3_600.0  # seconds that a policy may have a task wait for its data
MAX_KEPT_FOR_DATA = (
    600.0  # seconds for which a pilot without a task is kept, since it alone has data that tasks wait for
)
# --- the mesh of a site's pilots [protocol 12]
MAX_NEIGHBOURS = 8  # contacts that a pilot gets when it registers
MAX_ROSTER_CHANGES = 64  # of its mesh, that one reply tells a pilot; the rest are told with the next one
ROSTER_KEPT = 1_000  # changes remembered: a pilot that was away for more of them meets the others through the table
SMALL_MESH = 64  # members up to which each is told of every newcomer
MAX_SHUT_OUT = 1_000  # pilots whose certificates are good and who are members no more, told to one that registers
MAX_PEER_ADDRESS = 280  # characters
MAX_FRAME = 64 * 1024  # bytes of one message between pilots
MAX_PEER_LINKS = 32  # connections to other pilots that are kept for the next request
MAX_PEER_CONNECTIONS = 256  # of other pilots to one, at a time
MAX_PEER_CONNECTIONS_EACH = 16  # of them of one pilot
MAX_PEER_TRANSFERS = 16  # files that one pilot sends at a time; who asks for more is told to try others
MAX_PEER_RATE = 200  # messages per second of one connection; the burst is five times as large
FETCHED_KEPT = 10_000  # blobs of which the server remembers the pilots that fetched them
MAX_FETCHERS = 16  # of one blob
LEAST_SHARED = 64 * 1024  # bytes of a file that pilots tell each other of: the server sends a smaller one as fast
MAX_PEER_FILE = (
    4 << 30
)  # bytes of a file from another pilot that alone says how large it is: a larger one comes from its origin
MAX_PEER_FILE_TRIES = 8  # peers that fail to give one file before the server is asked for it
MAX_SHARED = 50_000  # files that one pilot serves; of more, those that it used first are not found at it any more
MAX_KEPT_OUT = 20_000  # ids that a pilot knows to be members of its mesh no more, the latest
MAX_STRIKES = 3  # files with wrong bytes that one peer may give before a pilot talks to it no more
MAX_ACCUSATIONS = 16  # of peers, per exchange
PEER_WITNESSES = 2  # hosts that must accuse a pilot before it is shut out of its mesh
MAX_SEALED = 1024 * 1024  # bytes of one exchange or answer that passes a leader; a larger one does not
MAX_SEALED_FRAME = 2 * MAX_SEALED + 4_096  # as a message between pilots: JSON in JSON has its quotes escaped
MAX_BUNDLE = 512  # exchanges in one request of a leader
MAX_BUNDLE_BYTES = 4 * 1024 * 1024  # of them
MAX_BUNDLED = 2_048  # exchanges of one leader's followers that wait for their answers at the server
MAX_FORWARDED = 256  # exchanges that one leader has not handed on yet: who brings more sends them to the server itself
MAX_SEALED_REPORTS = 64  # copies of others' reports in one exchange
MAX_SEALED_BYTES = 2 * 1024 * 1024  # of them
MAX_COPY = 256 * 1024  # bytes of one copy of reports, unless one report alone is larger
MAX_COPIES = 2_000  # on the disk of one host, of all pilots
MAX_COPIES_BYTES = 256 * 1024 * 1024  # of them
COPY_KEPT = 14 * 86_400.0  # seconds after which a copy that no server wanted is deleted
COPIES_ELSEWHERE = 2  # other members that keep each report, while the server is away [protocol 12]
MAX_WINDOW = 2_000  # tasks in the window of one mesh
MAX_WINDOW_LEASE = 32 * 1024  # bytes of one of them: each member keeps them all, and a frame has to hold it
WINDOW_STEP = 100  # tasks by which a window grows with one reply, and by which a message between members does
WINDOW_HOURS = 12.0  # of work for the slots of a mesh that its window holds at most: a night
WINDOWS_KEPT = 8  # windows that a task was in and left unbegun: of older ones a late report is not believed
WINDOW_HELD = 1_800.0  # seconds for which tasks of a window stay with a site of which nothing is heard any more

# --- policy [input E74, E75]
MAX_SHARE = 1e6  # of one owner or group: a million times the default
MAX_SHARES = 20_000  # owners and groups that a policy names
MAX_QUOTAS = 1_000  # rules; those that cover one owner on one site are checked at each start
MAX_LICENCE_KINDS = 1_000  # that a policy counts
MAX_QUOTA_COUNT = 10**12  # cores, core hours, tasks: beyond any pool, and exact in every sum
MAX_USAGE_BUCKETS = 366  # frames of a usage window: each owner keeps so many numbers
MAX_WEIGHT = 1e6  # of one term of the order of tasks
MAX_HOOK = 32  # arguments of a command

# --- accounts, and the failures that are remembered
MAX_ACCT_LINES = 10_000  # rows of one answer: truncated, its totals would be wrong
HOLDERS_KEPT = 10_000  # owners and groups whose failures are remembered
PLACES_KEPT = 5_000  # pilots, hosts and sites of one of them
KINDS_KEPT = 2_000  # kinds of tasks on the pilots of one of them, the ones that ended last
HOSTS_PER_KIND = 64
KINDS_PER_HOST = 8

# --- pilots that die under a task [promise I11]
POISON_LOSSES = 3
MOST_LOSSES = 6  # however many others the pilots held
MAX_RETURNS = 3  # consecutive exchanges in which a pilot only gives back what it was leased
MAX_SIBLINGS = 64  # pilots of one host that another one watches, and whose deaths it may report at once
