#pragma once
// What the launching line did between its calls, from samples of its main thread. The same stretch returns in every step, so
// samples of all steps speak for it: a hundred a second are too few for one step and enough for fifty.

#include <cstdint>
#include <string_view>
#include <vector>

#include "diagnose/answer/policy.h"
#include "diagnose/program/line.h"
#include "diagnose/timeline/frames.h"

namespace millrace::diagnose {

enum class Doing : std::uint8_t {
    kEnqueuing,   ///< the framework on its way to the next launch
    kLoading,     ///< waits for a batch, or makes one itself
    kWriting,     ///< files, logs
    kReading,     ///< asleep in the framework until the device has a value
    kCollecting,  ///< Python collects garbage, wherever it struck
    kComputing,   ///< other code of the user's, also where it waits for something
    kUnknown,
};

/// A part of a stretch.
struct Portion {
    Doing doing = Doing::kUnknown;
    bool waiting = false;  ///< sleeps until others are done (kLoading: workers)
    std::uint32_t place = kNoPlace;
    double share = 0;  ///< of the stretch
    std::size_t samples = 0;
    std::uint32_t wait = kNoName;  ///< while waiting: the system call it was seen in most, in Timeline::names
};

/// Portions of the stretches before each call of a lane.
class HostWork {
public:
    /// One entry per lane. Stretches of up to `least` are enqueuing as a whole.
    HostWork(const Timeline& timeline, const Launcher& launcher, const Places& places, const std::vector<Lane>& lanes, Time least);

    /// They sum to 1.
    const std::vector<Portion>& portions(std::size_t lane, std::uint32_t call) const { return classes_[class_of_[lane][call]]; }
    /// Garbage collection that a trace marked within the stretch, in nanoseconds; the portions share the rest.
    Time collecting(std::size_t lane, std::uint32_t call) const { return collecting_[lane][call]; }

    /// The line the user's code was in at a call: its own stack's, else (calls of the framework's threads) where samples
    /// show the main thread waiting for them, else that of the main thread's call before.
    std::uint32_t place_of(std::size_t lane, std::uint32_t call) const { return place_of_[lane][call]; }

private:
    void find_places(const Timeline& timeline, const Launcher& launcher, const Places& places, const std::vector<Lane>& lanes,
                     const std::vector<Sample>& samples);

    std::vector<std::vector<Portion>> classes_;
    std::vector<std::vector<std::uint32_t>> class_of_, place_of_;
    std::vector<std::vector<Time>> collecting_;
};

/// Of the stretch of host work before each call of a lane, what ranges of the process cover, in nanoseconds.
std::vector<Time> covered_before(const Timeline& timeline, const Launcher& launcher, const Lane& lane,
                                 const std::vector<Range>& ranges);

/// What is left of a stretch of host work before `call` without what another profiler's notes in it took.
Time without_notes(Time stretch, const Call& call);

/// Of system calls.
bool reads_files(std::string_view call);
/// What a sampled thread does.
Doing doing_of(const Timeline& timeline, const Sample& sample);
bool is_waiting(const Timeline& timeline, const Sample& sample);

}  // namespace millrace::diagnose
