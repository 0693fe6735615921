#include "diagnose/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/units.h"

namespace millrace::diagnose {
namespace {

constexpr std::array<std::string_view, 4> kVerdictNames{"better", "worse", "no difference", "too few blocks"};
constexpr std::size_t kLeastGrown = 10;  ///< blocks a side that growing leaves: one odd block must not decide
constexpr double kPauseShows = 0.05;     ///< change of the mean beside that of the median that is worth a remark
constexpr double kLongestBlock = 600;    ///< seconds; beyond, growing would need hours of recording

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

struct Dealt {
    Paces before, after;
    double seconds = 0;
    bool alike = false;  ///< neighbours still are, with the longest blocks that leave enough of them
};

Dealt dealt_in(const CompareSide& before, const CompareSide& after, double seconds) {
    return {paces(before.blocks, seconds), paces(after.blocks, seconds), seconds};
}

/// Blocks long enough that their order says little, as far as the recordings reach.
Dealt grown(const CompareSide& before, const CompareSide& after, Dealt dealt) {
    while ((dealt.alike = neighbours_are_alike(speeds_of(dealt.before), speeds_of(dealt.after))) &&
           dealt.seconds < kLongestBlock) {
        Dealt longer = dealt_in(before, after, dealt.seconds * 1.5);
        if (std::min(longer.before.size(), longer.after.size()) < kLeastGrown) break;
        dealt = std::move(longer);
    }
    return dealt;
}

using Recordings = std::span<const CompareSide>;  ///< of one side

/// Fills in the spreads of blocks and runs; `measured`: that of recordings, where there are several.
void add_spreads(Comparison& comparison, Recordings before, Recordings after, double block_seconds,
                 const CompareSettings& settings, std::optional<double> measured = std::nullopt) {
    double most = 0, squares = 0;
    for (const Recordings side : {before, after})
        for (const CompareSide& each : side) {
            most = std::max(most, host_share(each));
            const double own = unrest_of(speeds_of(paces(each.blocks, block_seconds)), each.breakdown_ms.has_value());
            squares += own * own / static_cast<double>(2 * side.size());
        }
    const double assumed = settings.run_spread * most;
    comparison.run_spread = measured.value_or(assumed);
    // Root of the mean square: of two runs that differ alike, as each does; where one is calm, the other's counts less. What few
    // recordings cannot show by themselves, blocks and what is assumed of runs may, as they do for one recording of each side;
    // unless the recordings lie farther apart than was assumed.
    comparison.assumed_spread = std::max({assumed, comparison.run_spread, std::sqrt(squares)});
}

double resampled_median(const Speeds& speeds, std::mt19937_64& random, Speeds& scratch) {
    scratch.resize(speeds.size());
    for (double& each : scratch) each = speeds[random() % speeds.size()];
    const auto middle = scratch.begin() + static_cast<std::ptrdiff_t>(scratch.size() / 2);
    std::nth_element(scratch.begin(), middle, scratch.end());
    if (scratch.size() % 2 == 1) return *middle;
    return (*middle + *std::max_element(scratch.begin(), middle)) / 2;
}

void add_interval(Comparison& comparison, const Dealt& dealt, const CompareSettings& settings) {
    std::mt19937_64 random(settings.test.seed);
    const Speeds before = speeds_of(dealt.before), after = speeds_of(dealt.after);
    Speeds changes, scratch;
    for (std::size_t at = 0; at < settings.resamples; ++at) {
        const double one = resampled_median(before, random, scratch), other = resampled_median(after, random, scratch);
        if (one > 0) changes.push_back(other / one - 1);
    }
    if (changes.empty()) return;
    comparison.change_low = quantile(changes, 0.025);
    comparison.change_high = quantile(changes, 0.975);
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

void add_remarks(Comparison& comparison, const Dealt& dealt) {
    if (dealt.alike)
        comparison.remarks.push_back(
            "neighbouring blocks are alike even when they are long: the speed drifts within a run; longer recordings tell more");
    const SpeedSummary &one = comparison.before, &other = comparison.after;
    if (!(one.mean > 0) || !comparison.change) return;
    const double mean_change = other.mean / one.mean - 1;
    if (std::abs(mean_change - *comparison.change) > kPauseShows)
        comparison.remarks.push_back(
            fmt::format("with pauses and slow stretches counted, speed was {} steps/s before and {} after ({:+.1f} %)",
                        base::print_figures(one.mean, 4), base::print_figures(other.mean, 4), 100 * mean_change));
}

constexpr std::size_t kLeastOfARun = 3;  ///< blocks of a recording beside others

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

RunSpeeds speeds_by_run(Recordings recordings, const CompareSettings& settings) {
    RunSpeeds all;
    for (const CompareSide& recording : recordings) {
        const Paces own = paces(recording.blocks, settings.block_seconds);
        all.least = all.medians.empty() ? own.size() : std::min(all.least, own.size());
        all.medians.push_back(summary_of(own).median);
        all.paces.insert(all.paces.end(), own.begin(), own.end());
    }
    return all;
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
    const double longest = std::max(summary_of(paces(before.blocks, 0)).seconds, summary_of(paces(after.blocks, 0)).seconds);
    const double least = std::max(settings.block_seconds, longest / static_cast<double>(settings.most_blocks));
    const Dealt brief = dealt_in(before, after, least), dealt = grown(before, after, brief);
    Comparison comparison;
    comparison.before = summary_of(dealt.before);
    comparison.after = summary_of(dealt.after);
    comparison.block_seconds = dealt.seconds;
    if (comparison.before.blocks > 0 && comparison.after.blocks > 0) {
        if (comparison.before.median > 0) comparison.change = comparison.after.median / comparison.before.median - 1;
        add_interval(comparison, dealt, settings);
    }
    if (std::min(dealt.before.size(), dealt.after.size()) < least_blocks(settings)) {
        comparison.more_seconds = missing_seconds(comparison, settings);
        return comparison;
    }
    const PermutationResult test = permutation_test(speeds_of(dealt.before), speeds_of(dealt.after), settings.test);
    const Speeds one = speeds_of(brief.before), other = speeds_of(brief.after);
    comparison.exact = test.exact;
    comparison.spread = std::max(spread_of(one), spread_of(other));
    add_spreads(comparison, {&before, 1}, {&after, 1}, least, settings);
    // The permutations know nothing of what likeness is left between blocks, the spread does: the more doubtful of the two
    // counts.
    comparison.p = comparison.change ? std::max(test.p, spread_p(one, other)) : test.p;
    comparison.verdict = verdict_of(comparison, settings);
    if (comparison.verdict == Verdict::kNoDifference && comparison.change &&
        std::abs(*comparison.change) >= settings.min_effect && is_beyond_spread(comparison, settings))
        comparison.more_seconds = seconds_until_certain(comparison, settings);
    add_remarks(comparison, dealt);
    return comparison;
}

Comparison compare(std::span<const CompareSide> before, std::span<const CompareSide> after, const CompareSettings& settings) {
    if (before.size() == 1 && after.size() == 1) return compare(before[0], after[0], settings);
    Comparison comparison;
    comparison.recordings_before = before.size();
    comparison.recordings_after = after.size();
    comparison.block_seconds = settings.block_seconds;
    const RunSpeeds from = speeds_by_run(before, settings), to = speeds_by_run(after, settings);
    comparison.before = summary_of(from.paces);
    comparison.after = summary_of(to.paces);
    const bool judged = std::min(from.paces.size(), to.paces.size()) >= least_blocks(settings);
    if (!judged || std::min(from.least, to.least) < kLeastOfARun) {
        comparison.more_seconds = std::max(missing_seconds(comparison, settings), kLeastOfARun * settings.block_seconds);
        return comparison;
    }
    const RunTest test = test_runs(from.medians, to.medians);
    const Speeds one = speeds_of(from.paces), other = speeds_of(to.paces);
    comparison.change = test.change;
    comparison.change_low = test.change_low;
    comparison.change_high = test.change_high;
    comparison.spread = std::max(spread_of(one), spread_of(other));
    comparison.p = test.p;
    add_spreads(comparison, before, after, settings.block_seconds, settings, test.spread);
    if (test.p >= settings.alpha && is_beyond_spread(comparison, settings))
        comparison.p = std::min(test.p, std::max(permutation_test(one, other, settings.test).p, spread_p(one, other)));
    comparison.verdict = verdict_of(comparison, settings);
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
