#include "touched_ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace freehold {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// False if the system can't.
bool populate(std::uint8_t* begin, std::size_t num_bytes) {
#ifdef MADV_POPULATE_WRITE
    return madvise(begin, num_bytes, MADV_POPULATE_WRITE) == 0;
#else
    (void)begin, (void)num_bytes;
    return false;
#endif
}

}  // namespace

TouchedAhead::TouchedAhead(std::uint8_t* begin, std::size_t num_bytes)
    : begin_(begin), size_(num_bytes), ahead_(std::min(num_bytes / 4, kMostAhead)), wanted_(ahead_) {}

void TouchedAhead::use(std::size_t num_bytes) {
    touched_ = std::max(touched_, num_bytes);
    if (wanted_ > 0) wanted_ = std::max(wanted_, std::min(size_, num_bytes + ahead_));
}

void TouchedAhead::touch() {
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(begin_) + touched_;
    const std::size_t up_to_border = kHugePage - address % kHugePage;
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));  // what is in use may end within one
    const std::size_t from = touched_ / page * page, end = std::min(touched_ + up_to_border, size_);
    touched_ = end;
    if (!populate(begin_ + from, end - from)) wanted_ = 0;
}

}  // namespace freehold
