#include "tune/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/processors.h"

namespace millrace::tune {
namespace {

constexpr std::chrono::seconds kReading{1};
constexpr std::uint64_t kStepsBetweenLooks = 64;
constexpr std::int64_t kLeastRowsAtOnce = 16;
constexpr std::size_t kMostRowCandidates = 5;
constexpr std::int64_t kBatchRange = 8;

Setting setting(const char* key, std::int64_t value) { return {key, fmt::format("{}", value)}; }

}  // namespace

Facts facts_of(const base::Recipe& recipe, Stepper& stepper, bool precision_free) {
    Facts facts;
    facts.gpu = stepper.engine().backend().kind() == ops::DeviceKind::cuda;
    facts.precisions = {stepper.setup().precision};
    const std::string own = tape::name_of(stepper.engine().store().options().precision);
    if (facts.gpu && (precision_free || recipe.text("precision") == "auto"))
        for (const char* other : {"bf16", "f32"})
            if (other != own && !(other == std::string("bf16") && ops::cuda_lacks_bf16())) facts.precisions.emplace_back(other);
    facts.cores = base::usable_processors();
    facts.threads = stepper.setup().threads;
    facts.batch = stepper.setup().settings.batch;
    facts.accumulate = stepper.setup().settings.optimizer.accumulation;
    facts.micro_batch = stepper.engine().micro_batch();
    facts.samples = stepper.engine().source().samples(data::Part::train);
    facts.minimum_rows = stepper.engine().model().minimum_rows();
    facts.couples_rows = !stepper.engine().row_couplings().empty();
    return facts;
}

std::vector<Settings> machine_candidates(const Facts& facts) {
    std::vector<Settings> all{{}};
    if (facts.gpu) {
        for (std::size_t i = 1; i < facts.precisions.size(); ++i) all.push_back({{"precision", facts.precisions[i]}});
        return all;
    }
    for (int threads = facts.cores; threads >= 1; threads = threads == 1 ? 0 : (threads + 1) / 2)
        if (threads != facts.threads) all.push_back({setting("threads", threads)});
    return all;
}

std::vector<Settings> row_candidates(const Facts& facts) {
    std::vector<Settings> all{{}};
    if (!facts.may_split()) return all;
    const std::int64_t rows = facts.step_rows();
    for (std::int64_t at_once = rows; at_once >= kLeastRowsAtOnce && all.size() < kMostRowCandidates; at_once /= 2) {
        if (at_once != facts.micro_batch && facts.batch % at_once == 0)
            all.push_back({setting("train.micro_batch", at_once)});
        else if (at_once > facts.batch)
            all.push_back({setting("train.batch", at_once), setting("train.accumulate", rows / at_once),
                           setting("train.micro_batch", at_once)});
        if (at_once % 2 != 0) break;
    }
    return all;
}

std::vector<BatchCandidate> batch_candidates(const Facts& facts) {
    const std::int64_t own = facts.step_rows();
    std::vector<BatchCandidate> all{{own, {}, {}}};
    const bool whole = facts.micro_batch == facts.batch;
    std::vector<std::int64_t> sizes;  // the nearest first: time may run out
    for (std::int64_t times = 2; times <= kBatchRange; times *= 2) {
        sizes.push_back(own * times);
        if (own % times == 0) sizes.push_back(own / times);
    }
    for (const std::int64_t rows : sizes) {
        if (rows > facts.samples || rows < facts.minimum_rows) continue;
        BatchCandidate candidate{rows, {}, {}};
        if (facts.accumulate > 1 && rows % facts.batch == 0) {
            candidate.settings = {setting("train.accumulate", rows / facts.batch)};
        } else {
            const std::int64_t at_once = whole || rows % facts.micro_batch != 0 ? rows : facts.micro_batch;
            candidate.settings = {setting("train.batch", rows), setting("train.micro_batch", at_once)};
            if (facts.accumulate > 1) candidate.settings.push_back(setting("train.accumulate", 1));
            if (facts.may_split() && at_once > facts.micro_batch && rows % facts.micro_batch == 0)
                candidate.split = joined(candidate.settings, {setting("train.micro_batch", facts.micro_batch)});
        }
        all.push_back(std::move(candidate));
    }
    return all;
}

base::Result<double> reader_seconds(const base::Recipe& recipe, const Settings& settings, std::chrono::nanoseconds longest,
                                    const base::Clock& clock) {
    MILLRACE_LET(stepper, Stepper::open(recipe, joined(settings, {{"data.threads", "1"}})));
    const auto begin = clock.now(), end = begin + std::min<std::chrono::nanoseconds>(kReading, longest);
    double samples = 0;
    do {
        for (std::uint64_t i = 0; i < kStepsBetweenLooks; ++i) {
            MILLRACE_TRY(stepper->skip_rows());
            samples += static_cast<double>(stepper->step_samples() / stepper->engine().members());
        }
    } while (clock.now() < end);
    return std::chrono::duration<double>(clock.now() - begin).count() / samples;
}

std::vector<std::int64_t> reader_threads(double samples_per_second, double reader_seconds, int cores) {
    const double needed = std::ceil(samples_per_second * reader_seconds);
    const auto threads = static_cast<std::int64_t>(std::clamp(needed, 1.0, static_cast<double>(std::max(1, cores))));
    std::vector<std::int64_t> all{threads};
    if (threads < cores) all.push_back(threads + 1);
    return all;
}

}  // namespace millrace::tune
