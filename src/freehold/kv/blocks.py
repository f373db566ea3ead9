"""KV blocks as ids: who holds how many of them. Bytes are the backend's; this file only counts.

A block is held (by requests), cached (by the prefix tree), both, or else free.
"""

from array import array
from collections.abc import Iterable, Iterator

INT32 = "i"


class BlockPool:
    """A fixed number of blocks with reference counts, one for each holder.

    Freed blocks are handed out again before untouched ones, so that memory that was never needed stays untouched.

    Attributes:
        num_blocks: blocks in the pool.
        num_evictable: cached blocks that nobody holds.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._ref_counts = [0] * num_blocks
        self._is_cached = bytearray(num_blocks)
        self._free = list(range(num_blocks - 1, -1, -1))
        self.num_evictable = 0

    @property
    def num_free(self) -> int:
        """Blocks that are neither held nor cached."""
        return len(self._free)

    @property
    def num_available(self) -> int:
        """Blocks that a request can have: free ones, and cached ones that can go."""
        return len(self._free) + self.num_evictable

    @property
    def num_held(self) -> int:
        """Blocks that somebody holds."""
        return self.num_blocks - self.num_available

    def allocate(self, count: int) -> list[int]:
        """Take `count` free blocks, one reference each. The caller has looked at `num_free`.

        Raises:
            ValueError: fewer blocks are free. Nothing was taken.
        """
        if count > len(self._free):
            raise ValueError(f"{count} blocks wanted, {len(self._free)} of {self.num_blocks} are free")
        block_ids = [self._free.pop() for _ in range(count)]
        for block_id in block_ids:
            self._ref_counts[block_id] = 1
        return block_ids

    def share(self, block_ids: Iterable[int]) -> None:
        """Add a reference to blocks that are held or cached.

        Raises:
            ValueError: a block is free.
        """
        for block_id in block_ids:
            if self._ref_counts[block_id] == 0:
                if not self._is_cached[block_id]:
                    raise ValueError(f"block {block_id} is free and can't be shared")
                self.num_evictable -= 1
            self._ref_counts[block_id] += 1

    def release(self, block_ids: Iterable[int]) -> None:
        """Drop one reference to each block; those without any left become evictable if they are cached, else free.

        Raises:
            ValueError: nobody holds a block.
        """
        for block_id in block_ids:
            if self._ref_counts[block_id] == 0:
                raise ValueError(f"block {block_id} is not held and can't be released")
            self._ref_counts[block_id] -= 1
            if self._ref_counts[block_id] == 0:
                if self._is_cached[block_id]:
                    self.num_evictable += 1
                else:
                    self._free.append(block_id)

    def cache(self, block_id: int) -> None:
        """Keep a block beyond its last holder.

        Raises:
            ValueError: nobody holds it, or it is cached already.
        """
        if self._ref_counts[block_id] == 0 or self._is_cached[block_id]:
            raise ValueError(f"block {block_id} is not held, or cached already")
        self._is_cached[block_id] = True

    def uncache(self, block_id: int) -> None:
        """No longer keep a block; if nobody holds it, it becomes free.

        Raises:
            ValueError: it isn't cached.
        """
        if not self._is_cached[block_id]:
            raise ValueError(f"block {block_id} isn't cached")
        self._is_cached[block_id] = False
        if self._ref_counts[block_id] == 0:
            self.num_evictable -= 1
            self._free.append(block_id)

    def is_cached(self, block_id: int) -> bool:
        """Whether a block is kept beyond its last holder."""
        return bool(self._is_cached[block_id])

    def ref_count(self, block_id: int) -> int:
        """References to one block."""
        return self._ref_counts[block_id]

    def free_ids(self) -> tuple[int, ...]:
        """The free blocks, for `freehold.kv.check`."""
        return tuple(self._free)


class BlockTable:
    """One request's blocks in order: entry i holds positions ``i * block_size`` onwards.

    The ids lie in one int32 buffer that the backend may read while the table grows: entries are only ever added, and a
    table that outgrows its buffer moves to a new one.
    """

    def __init__(self) -> None:
        self._buffer = array(INT32, bytes(4 * 8))
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[int]:
        return iter(self._buffer[: self._length])

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self._length:
            raise IndexError(f"entry {index} of a table with {self._length}")
        return self._buffer[index]

    @property
    def buffer(self) -> "array[int]":
        """int32 entries; those from ``len(table)`` onwards mean nothing."""
        return self._buffer

    def extend(self, block_ids: list[int]) -> None:
        """Add blocks at the end."""
        end = self._length + len(block_ids)
        if end > len(self._buffer):
            capacity = max(2 * len(self._buffer), end)
            moved = array(INT32, bytes(4 * capacity))
            moved[: self._length] = self._buffer[: self._length]
            self._buffer = moved
        for i, block_id in enumerate(block_ids, self._length):
            self._buffer[i] = block_id  # one by one: an array that is being read refuses slices
        self._length = end
