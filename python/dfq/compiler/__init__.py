"""The compiler: from an inbox of small USV files to an index of 256 sorted shards.

Writers put files into the inbox; compilers, on any node and as many as there are, fold them into
the shards. What makes that safe, in this order for each shard:

1. Take the advisory lock. It only saves work: nothing below relies on it.
2. Read the shard and remember its version, then the inbox files.
3. Merge: the newest record of a key wins, by a rule that knows no order of arrival.
4. Write the shard on the condition that it is still the version that was read. Whoever loses
   this race gives up, and nothing of the inbox was touched.
5. Only then: re-file what belongs elsewhere, set aside what can't be read, and delete the inbox
   files that were merged, no others.
6. Let go of the lock.

So every record is at every moment in the inbox or in the shard, and merging one twice changes
nothing: a crash between any two steps loses nothing, and the next compiler needs not know of it.
"""
