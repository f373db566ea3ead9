// Profiles of steps, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "bind.h"
#include "device.h"

namespace nb = nanobind;

namespace freehold {
namespace {

template <class T>
nb::object array_of(std::vector<T> values, std::initializer_list<std::size_t> shape) {
    auto* owned = new std::vector<T>(std::move(values));
    const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(owned->data(), shape, owner));
}

nb::object steps_array(const Profile& profile) {
    std::vector<std::int64_t> values;
    for (const Profile::Step& step : profile.steps()) {
        values.insert(values.end(), {step.start_ns, step.end_ns, step.num_rows, step.num_tokens});
    }
    return array_of(std::move(values), {profile.steps().size(), 4});
}

nb::object work_array(const Profile& profile) {
    std::vector<double> values;
    for (const Profile::Step& step : profile.steps()) {
        for (const PhaseWork& work : step.work) {
            values.insert(values.end(), {work.weight_bytes, work.kv_bytes, work.operations});
        }
    }
    return array_of(std::move(values), {profile.steps().size(), kNumPhases, 3});
}

nb::object busy_array(const Profile& profile) {
    std::vector<std::int64_t> values;
    for (const std::vector<Profile::Busy>& by_step : profile.busy()) {
        for (std::size_t step = 0; step < profile.steps().size(); ++step) {
            values.insert(values.end(), by_step[step].begin(), by_step[step].end());
        }
    }
    return array_of(std::move(values), {profile.busy().size(), profile.steps().size(), kNumPhases});
}

nb::object spans_array(const Profile& profile) {
    std::vector<std::int64_t> values;
    for (int thread = 0; thread < profile.num_threads(); ++thread) {
        for (const Profile::Span& span : profile.spans(thread)) {
            values.insert(values.end(), {thread, static_cast<int>(span.phase), span.layer, span.step, span.start_ns,
                                         span.end_ns, span.busy_ns, span.num_items});
        }
    }
    const std::size_t num_spans = values.size() / 8;
    return array_of(std::move(values), {num_spans, 8});
}

}  // namespace

nb::object stop_profile(Device& device) {
    std::unique_ptr<Profile> profile;
    {
        const nb::gil_scoped_release unlocked;
        profile = device.stop_profile();
    }
    if (!profile) return nb::none();
    nb::list phases;
    for (const char* name : kPhaseNames) phases.append(name);
    return nb::make_tuple(phases, profile->start_ns(), steps_array(*profile), work_array(*profile),
                          busy_array(*profile), spans_array(*profile), profile->num_skipped_steps(),
                          profile->num_lost_spans());
}

}  // namespace freehold
