// Matrices on their way from files or memory into the arena, packed by all threads at once.
//
// Work is handed out in runs of strips over all matrices. Who takes a run reads its rows into a buffer of its own and
// packs them from there while they are in its caches, so beside the arena nothing is needed but one small buffer a
// thread. Files are read, never mapped: one that shrinks meanwhile is an error, not the end of the process.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "matrix.h"
#include "sources.h"
#include "threads/team.h"

namespace freehold {

// A matrix's rows as the file stores them, one after the other.
struct RowsInMemory {
    const std::uint8_t* data;
};
struct RowsInFile {
    int descriptor;  // stays the caller's
    off_t start;
};
using Rows = std::variant<RowsInMemory, RowsInFile>;

struct IncomingMatrix {
    Matrix shape;
    SourceType source;
    Rows rows;
    std::vector<std::int32_t> order;  // the stored row of each output; empty: in the outputs' order
    std::uint8_t* destination;        // shape.num_bytes()
};

// A file that is shorter than its matrices need, or that can't be read.
struct ReadFailure {
    std::size_t matrix;  // its index
    int error;           // errno; 0: the file has ended
};

struct PackResult {
    std::optional<ReadFailure> failure;
    double packing_s;  // reading and waiting for the disk not counted; the threads' mean
};

// Packs all matrices. After a failed read nothing more is started, and what has been packed is worth nothing.
PackResult pack_all(const std::vector<IncomingMatrix>& matrices, Team& team);

}  // namespace freehold
