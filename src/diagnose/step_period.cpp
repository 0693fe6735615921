#include "diagnose/step_period.h"

#include <algorithm>

namespace millrace::diagnose {
namespace {

constexpr std::size_t kUpdatesTogether = 8;  ///< an optimizer takes several kernels; others stand between them
constexpr std::size_t kMostGroups = 4;       ///< groups of updates in one step: gradients cleared, two optimizers
constexpr std::size_t kLeastGroups = 4;
constexpr std::size_t kLeastShort = 4;  ///< launches of a step, where its update is a single kernel
constexpr std::size_t kMostLayer = 4;   ///< launches of a layer that passes for a step
constexpr std::size_t kFewPairs = 4;    ///< steps that follow each other, of all: fewer than one in so many say nothing
constexpr std::size_t kFewOthers = 8;  ///< what is shorter than a step or begins and ends otherwise: one to so many pairs at most
constexpr std::size_t kNearPart = 16;  ///< of a period, by which the step may be longer
constexpr double kSureMatch = 0.9;     ///< of steps that follow each other
constexpr double kLeastElementMatch = 0.5;  ///< of all elements, between what is no step

double match_at(std::span<const std::uint64_t> sequence, std::size_t distance) {
    std::size_t equal = 0;
    for (std::size_t i = 0; i + distance < sequence.size(); ++i) equal += sequence[i] == sequence[i + distance] ? 1 : 0;
    return static_cast<double>(equal) / static_cast<double>(sequence.size() - distance);
}

/// First elements of groups of updates: those that are no farther apart than `together`.
std::vector<std::size_t> groups_of(std::span<const char> marks, std::size_t together) {
    std::vector<std::size_t> groups;
    std::size_t last = 0;
    for (std::size_t i = 0; i < marks.size(); ++i) {
        if ((marks[i] & kUpdates) == 0) continue;
        if (groups.empty() || i - last > together || (marks[i] & kWholeStep) != 0) groups.push_back(i);
        last = i;
    }
    return groups;
}

/// Elements of `size` from `at` on that come again at that distance.
std::size_t equal_from(std::span<const std::uint64_t> sequence, std::size_t at, std::size_t size, std::size_t distance) {
    std::size_t equal = 0;
    for (std::size_t i = at; i < at + size && i + distance < sequence.size(); ++i)
        equal += sequence[i] == sequence[i + distance] ? 1 : 0;
    return equal;
}

/// Whether [begin, end) is a step and something else behind or before it: it begins as what is before it, or ends as what
/// follows.
bool has_step(std::span<const std::uint64_t> sequence, std::size_t begin, std::size_t end, std::size_t distance) {
    if (end - begin <= distance) return false;
    const bool begins = begin >= distance && 2 * equal_from(sequence, begin - distance, distance, distance) >= distance;
    return begins || 2 * equal_from(sequence, end - distance, distance, distance) >= distance;
}

/// The same of steps alone that follow each other at that distance, whatever stands between them (an evaluation of many more
/// launches); 0 where these are few, or where steps of another kind stand between them (a generator's between its critic's).
double match_of_steps(std::span<const std::uint64_t> sequence, std::span<const std::size_t> groups, std::size_t apart,
                      std::size_t distance) {
    std::size_t equal = 0, pairs = 0, others = 0;
    for (std::size_t i = 0; i + 2 * apart < groups.size(); ++i) {
        if (groups[i + apart] - groups[i] != distance) {
            others += has_step(sequence, groups[i], groups[i + apart], distance) ? 0 : 1;
            continue;
        }
        if (groups[i + 2 * apart] - groups[i + apart] != distance) continue;
        ++pairs;
        equal += equal_from(sequence, groups[i], distance, distance);
    }
    if (pairs * kFewPairs < groups.size() || others * kFewOthers > pairs) return 0;
    return static_cast<double>(equal) / static_cast<double>(pairs * distance);
}

}  // namespace

bool updates_parameters(std::string_view kernel) {
    // To the end of the word: a Lambda is no Lamb.
    const auto ends_word = [&](std::size_t at) { return at >= kernel.size() || kernel[at] < 'a' || kernel[at] > 'z'; };
    for (std::string_view part : {"multi_tensor_apply", "adam", "adamw", "adamax", "Adam", "Adamax", "sgd", "SGD", "adagrad",
                                  "Adagrad", "rmsprop", "RMSprop", "Lamb", "Lion"})
        for (std::size_t at = kernel.find(part); at != std::string_view::npos; at = kernel.find(part, at + 1))
            if (ends_word(at + part.size())) return true;
    return false;
}

namespace {

/// A period by groups of updates that is shorter than `found`.
std::optional<record::Period> period_of(std::span<const std::uint64_t> sequence, std::span<const std::size_t> groups,
                                        const std::optional<record::Period>& found) {
    for (std::size_t apart = 1; apart <= kMostGroups && groups.size() >= kLeastGroups * apart; ++apart) {
        std::vector<std::size_t> distances;
        for (std::size_t i = apart; i < groups.size(); ++i) distances.push_back(groups[i] - groups[i - apart]);
        const auto middle = distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 2);
        std::nth_element(distances.begin(), middle, distances.end());
        if (*middle == 0 || *middle >= sequence.size()) continue;
        if (found && *middle > found->length + std::max<std::size_t>(1, found->length / kNearPart)) break;
        const double steps = match_of_steps(sequence, groups, apart, *middle);
        // What is nearly as long as the step passes for it where an evaluation returns at that distance.
        if (found && 2 * *middle > found->length && steps < kSureMatch) break;
        const double match = std::max(match_at(sequence, *middle), steps);
        if (match >= kLeastElementMatch) return record::Period{*middle, match};
    }
    return std::nullopt;
}

/// Whether all of these are at least so far apart, with something between them that optimizers do not have.
bool are_steps(std::span<const std::size_t> groups, std::span<const char> marks, std::size_t least) {
    for (std::size_t i = 1; i < groups.size(); ++i) {
        const auto between = marks.subspan(groups[i - 1], groups[i] - groups[i - 1]);
        const bool multiplies = std::any_of(between.begin(), between.end(), [](char mark) { return (mark & kMultiplies) != 0; });
        if (between.size() < least || !multiplies) return false;
    }
    return true;
}

/// Steps so short that one's update is as near to the next one's as kernels of one optimizer are: each update is one then.
std::optional<record::Period> short_period(std::span<const std::uint64_t> sequence, std::span<const char> marks,
                                           const std::optional<record::Period>& found) {
    const std::vector<std::size_t> each = groups_of(marks, 0);
    const auto period = period_of(sequence, each, found);
    if (!period || period->length < kLeastShort || period->length > kUpdatesTogether || period->match < kSureMatch)
        return std::nullopt;
    return are_steps(each, marks, period->length) ? period : std::nullopt;
}

/// Steps of layers that are all alike: what returns first is a layer, but updates tell the step.
std::optional<record::Period> layered_period(std::span<const std::uint64_t> sequence, std::span<const char> marks,
                                             const std::optional<record::Period>& found) {
    if (!found || found->length > kMostLayer) return std::nullopt;
    const std::vector<std::size_t> groups = groups_of(marks, kUpdatesTogether);
    const auto period = period_of(sequence, groups, std::nullopt);
    if (!period || period->length <= found->length || period->match < kSureMatch) return std::nullopt;
    return are_steps(groups, marks, 1) ? period : std::nullopt;
}

}  // namespace

std::optional<record::Period> find_step_period(std::span<const std::uint64_t> sequence, std::span<const char> marks) {
    const auto found = record::find_period(sequence);
    if (marks.size() != sequence.size()) return found;
    if (const auto period = short_period(sequence, marks, found)) return period;
    if (const auto period = layered_period(sequence, marks, found)) return period;
    const auto period = period_of(sequence, groups_of(marks, kUpdatesTogether), found);
    return period ? period : found;
}

}  // namespace millrace::diagnose
