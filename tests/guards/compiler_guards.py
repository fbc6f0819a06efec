"""The guards of the compiler: what must not go from dfq/compiler, and the tests that notice."""

from __future__ import annotations

from guards import Guard, Place

RACES = "tests/integration/compiler/test_races.py"
CRASHES = "tests/integration/compiler/test_crashes.py"
BAD = "tests/integration/compiler/test_bad_input.py"
LOCK = "tests/unit/compiler/test_lock.py"
INDEX = "tests/unit/compiler/test_index.py"
RESULTS = "tests/unit/worker/test_results.py"

#: Writes a shard over whatever is there.
ANYHOW = """

def _anyhow(site: Site, key: str, path: str) -> str:
    with open(path, "rb") as file:
        return site.store.put(key, file.read())
"""
#: Takes a lock whoever has it.
TAKEN = """

def _taken(site: Site, key: str, body: bytes) -> object:
    from dfq.engines.s3.writes import Written

    return Written("won", site.store.put(key, body))
"""

LIST = "        files = read_files(site, list_inbox(site.store, shard), folder)\n"
FETCH = """        path = new_path(folder, "shard", site.chance)
        there = site.store.fetch(shard_key(shard), path)
"""


def one(
    name: str,
    file: str,
    within: str,
    change: tuple[str, str],
    tests: str,
    only: str = "",
    extra: str = "",
) -> Guard:
    """A guard that stands in one place of a Python file."""
    place = Place(f"compiler/{file}", within, *change, extra=extra)
    return Guard(f"compiler: {name}", place, tests, only)


COMPILER_GUARDS = (
    one(
        *("a shard is replaced by If-Match", "compiling.py", "def write_shard("),
        (
            "site.store.replace_from(key, merged.output, there.etag)",
            "_anyhow(site, key, merged.output)",
        ),
        *(RACES, "loses_the_race", ANYHOW),
    ),
    one(
        *("a new shard is created", "compiling.py", "def write_shard("),
        ("site.store.create_from(key, merged.output)", "_anyhow(site, key, merged.output)"),
        *(RACES, "loses_the_race", ANYHOW),
    ),
    one(
        *("nothing is deleted before the shard is written", "compiling.py", "def _compile_locked("),
        ('if end != "won":', 'if end == "never":'),
        *(RACES, "loses_the_race or lost_answer"),
    ),
    one(
        *("a lost answer is looked into", "compiling.py", "def write_shard("),
        ('return ("won", found.etag) if ours else ("unsure", "")', 'return "won", found.etag'),
        *(RACES, "lost_answer_to_the_write"),
    ),
    one(
        *("a lock that is over is taken by compare-and-swap", "lock.py", "def acquire("),
        (
            "site.writes.replace(key, lock.body(site.wall()), found.etag)",
            "_taken(site, key, lock.body(site.wall()))",
        ),
        *(LOCK, "over_is_taken_by_one", TAKEN),
    ),
    one(
        *("a lock that lives is left alone", "lock.py", "def acquire("),
        ("elif is_over(found, site.wall()):", "elif True:"),
        *(LOCK, "one_holder"),
    ),
    one(
        *("a lock is released by its version", "lock.py", "def _delete("),
        ("site.writes.delete(key, etag)", "site.store.delete(key)"),
        *(LOCK, "former_holder"),
    ),
    one(
        *("a foreign inbox file is deleted by its version", "inbox.py", "def _delete_version("),
        ("return site.writes.delete(file.key, file.etag)", "return site.store.delete(file.key)"),
        *(RACES, "rewritten_while"),
    ),
    one(
        *("only own names are deleted on no condition", "inbox.py", "def delete_files("),
        ("if is_own(file.key):", "if True:"),
        *(RACES, "rewritten_while"),
    ),
    one(
        *("marks of deletion are kept", "merging.py", "def merge("),
        ("int((now - keep_seconds) * 1e9) if drop_deleted", "int(now * 1e9) if drop_deleted"),
        *(RACES, "older_than_a_deletion"),
    ),
    one(
        *("no mark of deletion goes while something waits", "passes.py", "def _works("),
        ("is_all = complete and len(taken) == len(entries)", "is_all = True"),
        *(RACES, "in_none"),
    ),
    one(
        *("none goes while another inbox has foreign files", "passes.py", "def _works("),
        ("and foreign <= {shard}", "and True"),
        *(RACES, "another_inbox"),
    ),
    one(
        *("none goes if more was moved here meanwhile", "compiling.py", "def _compile_locked("),
        ("and _has_more(site, work)", "and False"),
        *(RACES, "moved_here"),
    ),
    one(
        *("a damaged shard is not written over", "compiling.py", "def _merge("),
        (
            'return _ended(work.shard, "damaged", f"{shard_key(work.shard)}: {error}")',
            "merged = merge(site, descriptor, folder, shard_path=None, inbox=files, shard=None)",
        ),
        *(BAD, "never_overwritten"),
    ),
    one(
        *("who knows fewer columns does not judge", "site.py", "def ensure_current("),
        ("if self.refresh().columns != descriptor.columns:", "if False:"),
        *(BAD, "fewer_columns"),
    ),
    one(
        *("what can't be merged is set aside", "compiling.py", "def _settle("),
        ("set_aside(site, merged, damaged, folder) if damaged else []", "[]"),
        *(BAD, "set_aside"),
    ),
    one(
        *("a misplaced record is moved", "refile.py", "def refile_misplaced("),
        ("    parts.write()\n", ""),
        *(BAD, "wrong_inbox"),
    ),
    one(
        *("flat files are deleted after they were moved", "refile.py", "def refile_flat("),
        ("parts.write().items()", "{}.items()"),
        *(CRASHES, "finished_by_the_next"),
    ),
    one(
        *("the inbox is read before the shard", "reading.py", "def _get("),
        (
            LIST + FETCH,
            FETCH + LIST,
        ),
        *(INDEX, "while_it_is_read"),
    ),
    Guard(
        "worker: results are put before the ack",
        Place(
            "worker/settlement.py",
            "def returned(",
            "self._write(delivery, ack, before=put)",
            "self._write(delivery, ack)",
        ),
        RESULTS,
        "before_its_records",
    ),
    Guard(
        "worker: the lease is renewed before results are put",
        Place(
            "worker/settlement.py",
            "def returned(",
            "delivery.context.heartbeat()",
            "pass",
        ),
        RESULTS,
        "puts_nothing",
    ),
)
