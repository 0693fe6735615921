#pragma once
// What a whole run took its time for, from samples of the thread that launches.

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace::diagnose {

enum class Activity : std::uint8_t { kStartUp, kCompiling, kTraining, kEvaluation, kCheckpoints, kOther };
constexpr std::size_t kActivities = 6;
std::string_view name_of(Activity activity);  ///< "start_up", "compiling", ...: the keys of `run` with _s behind

struct RunLedger {
    std::optional<double> wall_s;                            ///< from the command's first process to its last moment
    std::optional<std::array<double, kActivities>> seconds;  ///< sum to wall_s; absent: not sampled, or no training was seen
};

struct Study;
/// Each sample stands for the time until the next. Training is what runs through lines alone that training steps run through in
/// windows. What leaves them at some line and comes back to the model is evaluation; anything before the first training is
/// start-up; after the last, and where the thread is gone, other.
RunLedger ledger_of(const Study& study);

}  // namespace millrace::diagnose
