#pragma once
// Is one run faster than another? Steps are not independent of their neighbours, so what is compared are blocks of at least half
// a second. The verdict comes from a permutation test on the blocks' ranks: it needs no distribution, and a pause or an outlier
// is one rank, however far out it lies. It takes blocks for independent, which those of a restless run are not, however long: so
// the change must also be large beside the spread within the runs, with blocks that are alike counted as fewer (a trimmed t test
// of Yuen and Welch; autocorrelation at the upper end of what is possible). And since a run is also faster or slower than the
// next one of the same program, which no block of it shows, the change must be several times what that spread lets one fear, and
// several times what is assumed of runs of such a program (statistics.h). With several recordings of a side their spread is
// measured, and a t test on the recordings may decide alone. Each side needs the blocks that two equal sides would need for
// `alpha`: seven for a thousandth.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "diagnose/answer/diagnosis.h"
#include "diagnose/compare/statistics.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

struct CompareSettings {
    double alpha = 0.001;        ///< the verdict is wrong about equal runs at most this often
    double min_effect = 0.02;    ///< of speed; what is less counts as no difference
    double min_spread = 3;       ///< in spreads (Comparison::assumed_spread); what is less counts as no difference
    double run_spread = 0.08;    ///< assumed: standard deviation from run to run of what the host does, as a share of its speed
    double block_seconds = 0.5;  ///< least length of a block
    std::size_t most_blocks = 400;  ///< on a side: longer runs get longer blocks
};

/// What is known of a run: one side, or one of its recordings.
struct CompareSide {
    std::string title;
    std::vector<Block> blocks;  ///< of any length; see speed_blocks
    std::optional<double> busy_share;
    std::optional<OwnerMs> breakdown_ms;
};

/// Share of a step in which no GPU computes or communicates; 0 where that is not known.
double host_share(const CompareSide& side);

/// Steps counted outside recording; where there are none, those that were recorded.
std::vector<Block> speed_blocks(const Timeline& timeline, const Diagnosis& diagnosis);

/// Of the blocks' speeds.
struct SpeedSummary {
    std::size_t blocks = 0;
    double seconds = 0, steps = 0;
    double median = 0, low = 0, high = 0;  ///< steps per second: p50, p10, p90 of the blocks; only with blocks > 0
    double mean = 0;                       ///< all steps by all time: pauses count
};

enum class Verdict : std::uint8_t { kBetter, kWorse, kNoDifference, kTooFewBlocks };
std::string_view name_of(Verdict verdict);  ///< "better", "worse", "no difference", "too few blocks"

struct Comparison {
    SpeedSummary before, after;
    Verdict verdict = Verdict::kTooFewBlocks;
    std::optional<double> change;                   ///< of the median speed: 0.05 is 5 % faster
    std::optional<double> change_low, change_high;  ///< 95 % interval; absent where too little is known
    std::optional<double> p;                        ///< two-sided, the larger of both tests'
    double spread = 0;                              ///< standard deviation of the more restless run's blocks, as a share of speed
    double run_spread = 0;                          ///< the same of runs of one program, assumed or measured
    double assumed_spread = 0;                      ///< what the change is held against: the larger of that and what the unrest
                                                    ///< within runs lets one fear
    std::size_t recordings_before = 1, recordings_after = 1;
    bool exact = false;  ///< every permutation was looked at
    double block_seconds = 0;
    std::optional<double> more_seconds;  ///< that each run should be recorded longer, at least: with too few blocks, or
                                         ///< where a change that is large enough is not certain
    std::vector<std::string> remarks;
};

/// Whether run_spread was measured.
bool has_run_spread(const Comparison& comparison);
/// Whether the runs differ for certain and by more than runs of one program do; `least` as a share of speed.
bool is_clear(const Comparison& comparison, double least, const CompareSettings& settings = {});

/// The smallest loss of speed that as many recordings can show, whatever they measure; 0: they were not judged.
double least_loss_shown(const Comparison& comparison, const CompareSettings& settings = {});
/// Recordings of each side with which a change of that size is more than runs of one program differ by.
std::size_t recordings_needed(const Comparison& comparison, double change, const CompareSettings& settings = {});

/// One recording of each side.
Comparison compare(const CompareSide& before, const CompareSide& after, const CompareSettings& settings = {});
/// Each side by its recordings, one at least.
Comparison compare(std::span<const CompareSide> before, std::span<const CompareSide> after, const CompareSettings& settings = {});

/// Whether the runs leave open if the later one is slower by more than `share` of the speed: too few blocks, or a loss of more
/// than that (and than min_effect) was measured but is not certain.
bool is_open(const Comparison& comparison, double share, const CompareSettings& settings = {});

/// Whether `comparison` shows that the later run is slower by more than `share` of the speed.
bool is_slower_by(const Comparison& comparison, double share, const CompareSettings& settings = {});

/// A block as the test takes it. Time between the blocks it was made of does not count.
struct Pace {
    double seconds = 0, steps = 0;
    [[nodiscard]] double speed() const { return steps / seconds; }
};
/// Neighbours added up until each has at least `seconds`; what is left at the end goes into the last one. Blocks that end before
/// they begin, or whose steps are no number, are passed over.
std::vector<Pace> paces(std::span<const Block> blocks, double seconds);

}  // namespace millrace::diagnose
