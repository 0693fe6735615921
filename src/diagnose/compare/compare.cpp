#include "diagnose/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace millrace::diagnose {
namespace {

constexpr std::array<std::string_view, 4> kVerdictNames{"better", "worse", "no difference", "too few blocks"};
constexpr double kPauseShows = 0.05;     ///< change of the mean beside that of the median that is worth a remark
constexpr std::size_t kLeastOfARun = 3;  ///< blocks of a recording beside others

using Paces = std::vector<Pace>;

Speeds speeds_of(const Paces& paces) {
    Speeds speeds;
    for (const Pace& pace : paces) speeds.push_back(pace.speed());
    return speeds;
}

SpeedSummary summary_of(const Paces& paces) {
    SpeedSummary summary;
    summary.blocks = paces.size();
    for (const Pace& pace : paces) summary.seconds += pace.seconds, summary.steps += pace.steps;
    if (paces.empty()) return summary;
    const Speeds speeds = speeds_of(paces);
    summary.median = quantile(speeds, 0.5);
    summary.low = quantile(speeds, 0.1);
    summary.high = quantile(speeds, 0.9);
    summary.mean = summary.steps / summary.seconds;
    return summary;
}

using Recordings = std::span<const CompareSide>;  ///< of one side

/// Fills in the spreads of blocks and runs; `measured`: that of recordings, where there are several.
void add_spreads(Comparison& comparison, Recordings before, Recordings after, const CompareSettings& settings,
                 std::optional<double> measured) {
    double most = 0, squares = 0;
    for (const Recordings side : {before, after})
        for (const CompareSide& each : side) {
            most = std::max(most, host_share(each));
            const double own = unrest_of(speeds_of(paces(each.blocks, comparison.block_seconds)), each.breakdown_ms.has_value());
            squares += own * own / static_cast<double>(2 * side.size());
        }
    const double assumed = settings.run_spread * most;
    comparison.run_spread = measured.value_or(assumed);
    // Root of the mean square: of two runs that differ alike, as each does; where one is calm, the other's counts less. What few
    // recordings cannot show by themselves, blocks and what is assumed of runs may, as they do for one recording of each side;
    // unless the recordings lie farther apart than was assumed.
    comparison.assumed_spread = std::max({assumed, comparison.run_spread, std::sqrt(squares)});
}

/// Blocks without which a side is not judged: as many as two equal sides need. Three blocks beside a hundred could give as small
/// a p, but a second and a half says nothing about a run.
std::size_t least_blocks(const CompareSettings& settings) {
    std::size_t needed = 1;
    while (smallest_p(needed, needed) >= settings.alpha) ++needed;
    return needed;
}

/// How much longer each side must be, with blocks like these, for a change that is large enough to be certain in four of five
/// cases.
std::optional<double> seconds_until_certain(const Comparison& comparison, const CompareSettings& settings) {
    constexpr double kHopeless = 10;      ///< times as long: it may as well be none
    constexpr double kFourOfFive = 0.84;  ///< deviations
    constexpr double kNormal = 1e9;       ///< degrees of freedom
    const double times =
        std::pow((student_t(settings.alpha, kNormal) + kFourOfFive) / std::max(1e-9, student_t(*comparison.p, kNormal)), 2);
    if (!(times > 1) || times > kHopeless) return std::nullopt;
    return (times - 1) * std::min(comparison.before.seconds, comparison.after.seconds);
}

/// How much longer each side must be for a verdict to be possible at all.
double missing_seconds(const Comparison& comparison, const CompareSettings& settings) {
    const std::size_t needed = least_blocks(settings);
    const auto missing = [&](const SpeedSummary& side) {
        // A slow program's blocks are as long as its steps.
        const double block = side.blocks > 0 ? std::max(comparison.block_seconds, side.seconds / static_cast<double>(side.blocks))
                                             : comparison.block_seconds;
        return needed > side.blocks ? static_cast<double>(needed - side.blocks) * block : 0;
    };
    return std::max(missing(comparison.before), missing(comparison.after));
}

void add_remarks(Comparison& comparison, bool alike) {
    if (alike)
        comparison.remarks.push_back("neighbouring blocks are alike: the speed drifts within a run; longer recordings tell more");
    const SpeedSummary &one = comparison.before, &other = comparison.after;
    if (!(one.mean > 0) || !comparison.change) return;
    const double mean_change = other.mean / one.mean - 1;
    if (std::abs(mean_change - *comparison.change) > kPauseShows)
        comparison.remarks.push_back(
            fmt::format("with pauses and slow stretches counted, speed was {} steps/s before and {} after ({:+.1f} %)",
                        base::print_figures(one.mean, 4), base::print_figures(other.mean, 4), 100 * mean_change));
}

struct RunSpeeds {
    Speeds medians;         ///< by recording
    Paces paces;            ///< of all
    std::size_t least = 0;  ///< blocks of the shortest recording
};

/// What chance makes of a change between as many recordings of one program, as a logarithm.
double reach_of_chance(const Comparison& comparison, const CompareSettings& settings) {
    const double fewer =
        (1 / static_cast<double>(comparison.recordings_before) + 1 / static_cast<double>(comparison.recordings_after)) / 2;
    return settings.min_spread * comparison.assumed_spread * std::sqrt(fewer);
}

bool is_beyond_spread(const Comparison& comparison, const CompareSettings& settings) {
    return std::abs(std::log1p(*comparison.change)) >= reach_of_chance(comparison, settings);
}

RunSpeeds speeds_by_run(Recordings recordings, double block_seconds) {
    RunSpeeds all;
    for (const CompareSide& recording : recordings) {
        const Paces own = paces(recording.blocks, block_seconds);
        all.least = all.medians.empty() ? own.size() : std::min(all.least, own.size());
        all.medians.push_back(summary_of(own).median);
        all.paces.insert(all.paces.end(), own.begin(), own.end());
    }
    return all;
}

/// Longer runs get longer blocks.
double block_length(Recordings before, Recordings after, const CompareSettings& settings) {
    double longest = 0;
    for (const Recordings side : {before, after}) longest = std::max(longest, summary_of(speeds_by_run(side, 0).paces).seconds);
    return std::max(settings.block_seconds, longest / static_cast<double>(settings.most_blocks));
}

Verdict verdict_of(const Comparison& comparison, const CompareSettings& settings) {
    if (!is_clear(comparison, settings.min_effect, settings)) return Verdict::kNoDifference;
    return *comparison.change > 0 ? Verdict::kBetter : Verdict::kWorse;
}

}  // namespace

double host_share(const CompareSide& side) {
    if (!side.breakdown_ms) return 0;
    const double all = sum_of(*side.breakdown_ms);
    const double device = (*side.breakdown_ms)[index_of(Owner::kCompute)] + (*side.breakdown_ms)[index_of(Owner::kCommunication)];
    return all > 0 && std::isfinite(all) ? std::clamp(1 - device / all, 0.0, 1.0) : 0;
}

std::string_view name_of(Verdict verdict) { return kVerdictNames.at(static_cast<std::size_t>(verdict)); }

std::vector<Block> speed_blocks(const Timeline& timeline, const Diagnosis& diagnosis) {
    if (!timeline.blocks.empty()) return diagnosis.blocks.empty() ? timeline.blocks : diagnosis.blocks;
    std::vector<Block> blocks;
    for (const auto& [begin, end] : diagnosis.recorded) blocks.push_back({begin, end, 1});
    return blocks;
}

std::vector<Pace> paces(std::span<const Block> blocks, double seconds) {
    Paces out;
    Pace open;
    for (const Block& block : blocks) {
        const double length = (static_cast<double>(block.end) - static_cast<double>(block.begin)) * 1e-9;
        if (!(length > 0) || !std::isfinite(block.steps) || block.steps < 0) continue;
        open.seconds += length;
        open.steps += block.steps;
        if (open.seconds >= seconds * 0.999) {  // half a second by the clock may be a little less by the sum
            out.push_back(open);
            open = {};
        }
    }
    if (!out.empty()) out.back().seconds += open.seconds, out.back().steps += open.steps;
    return out;
}

Comparison compare(const CompareSide& before, const CompareSide& after, const CompareSettings& settings) {
    return compare({&before, 1}, {&after, 1}, settings);
}

Comparison compare(std::span<const CompareSide> before, std::span<const CompareSide> after, const CompareSettings& settings) {
    Comparison comparison;
    comparison.recordings_before = before.size();
    comparison.recordings_after = after.size();
    comparison.block_seconds = block_length(before, after, settings);
    const RunSpeeds from = speeds_by_run(before, comparison.block_seconds), to = speeds_by_run(after, comparison.block_seconds);
    comparison.before = summary_of(from.paces);
    comparison.after = summary_of(to.paces);
    const bool several = has_run_spread(comparison);
    const std::size_t fewest = std::min(from.paces.size(), to.paces.size());
    const Speeds one = speeds_of(from.paces), other = speeds_of(to.paces);
    SpeedTest test = fewest > 1 ? test_blocks(one, other) : SpeedTest{};
    if (!several && fewest > 0 && comparison.before.median > 0)
        comparison.change = comparison.after.median / comparison.before.median - 1;
    if (fewest < least_blocks(settings) || (several && std::min(from.least, to.least) < kLeastOfARun)) {
        comparison.more_seconds = missing_seconds(comparison, settings);
        if (several) *comparison.more_seconds = std::max(*comparison.more_seconds, kLeastOfARun * comparison.block_seconds);
        return comparison;
    }
    // The permutations know nothing of what likeness is left between blocks, the spread does: the more doubtful of the two
    // counts.
    const PermutationResult ranks = permutation_test(one, other);
    const double p = std::max(ranks.p, test.p);
    comparison.exact = ranks.exact;
    comparison.spread = std::max(spread_of(one), spread_of(other));
    std::optional<double> measured;
    if (several) {
        test = test_runs(from.medians, to.medians);
        measured = test.spread;
        comparison.change = std::expm1(test.change);
    }
    add_spreads(comparison, before, after, settings, measured);
    comparison.p = several ? test.p : p;
    if (several && test.p >= settings.alpha && is_beyond_spread(comparison, settings)) comparison.p = std::min(test.p, p);
    if (comparison.change) {
        comparison.change_low = std::expm1(std::log1p(*comparison.change) - test.reach);
        comparison.change_high = std::expm1(std::log1p(*comparison.change) + test.reach);
    }
    comparison.verdict = verdict_of(comparison, settings);
    if (several) return comparison;
    if (comparison.verdict == Verdict::kNoDifference && comparison.change &&
        std::abs(*comparison.change) >= settings.min_effect && is_beyond_spread(comparison, settings))
        comparison.more_seconds = seconds_until_certain(comparison, settings);
    add_remarks(comparison, neighbours_are_alike(one, other));
    return comparison;
}

double least_loss_shown(const Comparison& comparison, const CompareSettings& settings) {
    return comparison.p ? std::max(settings.min_effect, -std::expm1(-reach_of_chance(comparison, settings))) : 0;
}

std::size_t recordings_needed(const Comparison& comparison, double change, const CompareSettings& settings) {
    const double times = settings.min_spread * comparison.assumed_spread / std::abs(std::log1p(change));
    return static_cast<std::size_t>(std::clamp(std::ceil(times * times), 1.0, 1e6));
}

bool has_run_spread(const Comparison& comparison) { return comparison.recordings_before + comparison.recordings_after > 2; }

bool is_clear(const Comparison& comparison, double least, const CompareSettings& settings) {
    if (!comparison.p || *comparison.p >= settings.alpha || !comparison.change || std::abs(*comparison.change) < least)
        return false;
    return has_run_spread(comparison) || is_beyond_spread(comparison, settings);
}

bool is_open(const Comparison& comparison, double share, const CompareSettings& settings) {
    if (comparison.verdict == Verdict::kTooFewBlocks || !comparison.change) return true;
    return *comparison.change < -std::max(share, settings.min_effect) && !is_clear(comparison, 0, settings);
}

bool is_slower_by(const Comparison& comparison, double share, const CompareSettings& settings) {
    return is_clear(comparison, 0, settings) && *comparison.change < -share;
}

}  // namespace millrace::diagnose
