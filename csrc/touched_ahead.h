// Memory that a process reserves becomes its own a page at a time, when it is first written. That takes 0.2 ms for a
// huge page, and some 5 ms where the machine is virtual and its host has to find one, too: a prompt of 512 tokens
// waited 15 ms for the places of its keys and values. So while nothing is to be done, a little more is touched than is
// in use. Memory further behind stays untouched.
#pragma once

#include <cstddef>
#include <cstdint>

namespace freehold {

class TouchedAhead {
  public:
    // Of `num_bytes` from `begin` on, a quarter at most is touched ahead.
    TouchedAhead(std::uint8_t* begin, std::size_t num_bytes);

    // The first so many bytes are in use, or were.
    void use(std::size_t num_bytes);
    bool wants_more() const { return touched_ < wanted_; }
    // Touches a huge page more. What it holds stays as it is.
    void touch();

  private:
    static constexpr std::size_t kMostAhead = std::size_t{64} << 20;

    std::uint8_t* begin_;
    std::size_t size_;
    std::size_t ahead_;
    std::size_t touched_ = 0;  // from the beginning
    std::size_t wanted_;
};

}  // namespace freehold
