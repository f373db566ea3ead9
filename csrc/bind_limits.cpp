// The machine's limits, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bind.h"
#include "machine_limits.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace freehold {
namespace {

using Peak = std::tuple<std::string, int, int, double, double>;
using Job = std::tuple<std::size_t, std::size_t, int>;

std::vector<Peak> compute_peaks(const std::string& isa, int num_threads, int num_bursts) {
    std::vector<Peak> peaks;
    for (const ComputePeak& peak : measure_compute(isa, num_threads, num_bursts)) {
        peaks.emplace_back(peak.kind, peak.operations_per_step, peak.instructions_per_step, peak.operations_per_s,
                           peak.clock_hz);
    }
    return peaks;
}

std::vector<std::vector<double>> read_rates(const std::string& isa, const std::vector<Job>& jobs, int num_rounds) {
    std::vector<ReadJob> native;
    for (const auto& [buffer_bytes, bytes_in_burst, num_threads] : jobs) {
        native.push_back({buffer_bytes, bytes_in_burst, num_threads});
    }
    return measure_reads(isa, native, num_rounds);
}

}  // namespace

void bind_limits(nb::module_& m) {
    m.def("compute_peaks", compute_peaks, "isa"_a, "num_threads"_a, "num_bursts"_a,
          nb::call_guard<nb::gil_scoped_release>());
    m.def("read_rates", read_rates, "isa"_a, "jobs"_a, "num_rounds"_a, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace freehold
