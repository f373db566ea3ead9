#include "row_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <utility>

namespace freehold {
namespace {

constexpr std::size_t kRunBytes = std::size_t{256} << 10;   // read at a time: half of a core's second cache
constexpr std::size_t kAheadBytes = std::size_t{64} << 20;  // asked of the disk before they are needed
constexpr std::size_t kAdviceBytes = std::size_t{2} << 20;  // in one request

// Consecutive strips of a matrix, and the stored rows that hold them.
struct Run {
    std::size_t matrix;
    int first_strip;
    int num_strips;
    int first_row;
    int num_rows;
    std::size_t bytes_before;  // of rows of earlier runs
};

std::size_t row_bytes(const IncomingMatrix& matrix) {
    return source_of(matrix.source).row_bytes(matrix.shape.num_inputs);
}

std::pair<int, int> stored_rows(const IncomingMatrix& matrix, int first_output, int end_output) {
    if (matrix.order.empty()) return {first_output, end_output};
    const auto [lowest, highest] =
        std::minmax_element(matrix.order.begin() + first_output, matrix.order.begin() + end_output);
    return {*lowest, *highest + 1};
}

std::vector<Run> cut_into_runs(const std::vector<IncomingMatrix>& matrices) {
    std::vector<Run> runs;
    std::size_t bytes_before = 0;
    for (std::size_t m = 0; m < matrices.size(); ++m) {
        const IncomingMatrix& matrix = matrices[m];
        const std::size_t strip_rows_bytes = row_bytes(matrix) * kStrip;
        const int step =
            static_cast<int>(std::max<std::size_t>(1, kRunBytes / std::max<std::size_t>(1, strip_rows_bytes)));
        const int num_strips = matrix.shape.num_strips();
        for (int strip = 0; strip < num_strips; strip += step) {
            const int end = std::min(strip + step, num_strips);
            const auto [first_row, end_row] =
                stored_rows(matrix, strip * kStrip, std::min(end * kStrip, matrix.shape.num_outputs));
            runs.push_back({m, strip, end - strip, first_row, end_row - first_row, bytes_before});
            bytes_before += row_bytes(matrix) * static_cast<std::size_t>(end_row - first_row);
        }
    }
    return runs;
}

class Stream {
  public:
    explicit Stream(const std::vector<IncomingMatrix>& matrices)
        : matrices_(matrices), runs_(cut_into_runs(matrices)) {}

    int num_runs() const { return static_cast<int>(runs_.size()); }

    void pack(int index, std::vector<std::uint8_t>& buffer) {
        if (has_failed_.load(std::memory_order_relaxed)) return;
        const Run& run = runs_[static_cast<std::size_t>(index)];
        const IncomingMatrix& matrix = matrices_[run.matrix];
        advise(run.bytes_before + kAheadBytes);
        const std::uint8_t* rows = stored(run, matrix, buffer);
        if (rows == nullptr) return;
        const auto started = std::chrono::steady_clock::now();
        for (int strip = run.first_strip; strip < run.first_strip + run.num_strips; ++strip) {
            pack_from(rows, run.first_row, matrix, strip);
        }
        const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - started;
        packing_ns_.fetch_add(taken.count(), std::memory_order_relaxed);
    }

    std::optional<ReadFailure> failure() const { return failure_; }
    double packing_s() const { return static_cast<double>(packing_ns_.load()) * 1e-9; }

  private:
    static void pack_from(const std::uint8_t* stored, int first_row, const IncomingMatrix& matrix, int strip) {
        const int first = strip * kStrip;
        const int num_rows = std::min(kStrip, matrix.shape.num_outputs - first);
        const std::uint8_t* rows[kStrip];
        for (int i = 0; i < num_rows; ++i) {
            const int row = matrix.order.empty() ? first + i : matrix.order[static_cast<std::size_t>(first + i)];
            rows[i] = stored + row_bytes(matrix) * static_cast<std::size_t>(row - first_row);
        }
        pack_strip(matrix.shape, matrix.source, rows, num_rows,
                   matrix.destination + matrix.shape.strip_bytes() * static_cast<std::size_t>(strip));
    }

    // The run's rows, if need be read into `buffer`; null if that failed.
    const std::uint8_t* stored(const Run& run, const IncomingMatrix& matrix, std::vector<std::uint8_t>& buffer) {
        const std::size_t start = row_bytes(matrix) * static_cast<std::size_t>(run.first_row);
        const std::size_t num_bytes = row_bytes(matrix) * static_cast<std::size_t>(run.num_rows);
        if (const auto* memory = std::get_if<RowsInMemory>(&matrix.rows)) return memory->data + start;
        const RowsInFile& file = std::get<RowsInFile>(matrix.rows);
        if (buffer.size() < num_bytes) buffer.resize(num_bytes);
        for (std::size_t done = 0; done < num_bytes;) {
            const ssize_t read = pread(file.descriptor, buffer.data() + done, num_bytes - done,
                                       file.start + static_cast<off_t>(start + done));
            if (read > 0) {
                done += static_cast<std::size_t>(read);
            } else if (read == 0 || errno != EINTR) {
                fail({run.matrix, read == 0 ? 0 : errno});
                return nullptr;
            }
        }
        return buffer.data();
    }

    // Asks for the rows up to `bytes_end` of the stream, unless another thread is at it.
    void advise(std::size_t bytes_end) {
        const std::unique_lock lock(advising_, std::try_to_lock);
        if (!lock) return;
        while (num_advised_ < runs_.size() && runs_[num_advised_].bytes_before < bytes_end) {
            const Run& first = runs_[num_advised_];
            const IncomingMatrix& matrix = matrices_[first.matrix];
            std::size_t num_bytes = 0;
            for (;
                 num_advised_ < runs_.size() && runs_[num_advised_].matrix == first.matrix && num_bytes < kAdviceBytes;
                 ++num_advised_) {
                num_bytes += row_bytes(matrix) * static_cast<std::size_t>(runs_[num_advised_].num_rows);
            }
            if (const auto* file = std::get_if<RowsInFile>(&matrix.rows)) {
                const std::size_t start = row_bytes(matrix) * static_cast<std::size_t>(first.first_row);
                (void)posix_fadvise(file->descriptor, file->start + static_cast<off_t>(start),
                                    static_cast<off_t>(num_bytes), POSIX_FADV_WILLNEED);
            }
        }
    }

    void fail(ReadFailure failure) {
        const std::lock_guard lock(failing_);
        if (!failure_) failure_ = failure;
        has_failed_.store(true, std::memory_order_relaxed);
    }

    const std::vector<IncomingMatrix>& matrices_;
    const std::vector<Run> runs_;
    std::mutex advising_;
    std::size_t num_advised_ = 0;  // runs
    std::mutex failing_;
    std::optional<ReadFailure> failure_;
    std::atomic<bool> has_failed_{false};
    std::atomic<std::int64_t> packing_ns_{0};  // of all threads
};

}  // namespace

PackResult pack_all(const std::vector<IncomingMatrix>& matrices, Team& team) {
    Stream stream(matrices);
    std::vector<std::vector<std::uint8_t>> buffers(static_cast<std::size_t>(team.size()));
    team.run([&](int thread) {
        std::vector<std::uint8_t>& buffer = buffers[static_cast<std::size_t>(thread)];
        team.for_each(stream.num_runs(), [&](int run) { stream.pack(run, buffer); });
    });
    return {stream.failure(), stream.packing_s() / team.size()};
}

}  // namespace freehold
