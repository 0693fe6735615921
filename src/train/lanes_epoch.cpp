// An epoch of all lanes and what is measured of them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/in_flight.h"
#include "train/lanes_impl.h"

namespace millrace::train {

/// Launches the steps of an epoch and sums what they leave in the ring, which is host memory.
base::Result<StepSums> Lanes::Impl::train(const std::atomic<int>* stop, bool& stopped) {
    Engine& engine = *setup.engine;
    StepSums sums(engine.members());
    std::uint64_t first_clock = 0, last_clock = 0;
    const auto drain = [&] {
        reader.drain([&](RingRows rows) {
            sums.add(rows);
            last_clock = rows.front().clock;
            if (sums.steps() == 1) first_clock = last_clock;
        });
    };
    const auto steps = static_cast<std::uint64_t>(engine.epoch().count());
    for (std::uint64_t index = 0; index < steps && !stopped; ++index) {
        MILLRACE_TRY(engine.await_rows(launched, [this] { return base::Result<std::uint64_t>(reader.consumed()); }));
        engine.launch_step(index);
        launched += 1;
        MILLRACE_TRY(wait_while(engine.backend(), [&] { return is_far_ahead(reader, launched); }));
        drain();
        stopped = stop != nullptr && stop->load(std::memory_order_relaxed) != 0;
    }
    engine.backend().synchronize();
    MILLRACE_TRY(engine.backend().check());
    while (reader.consumed() < launched) drain();
    if (steps > 1 && last_clock >= first_clock && !stopped)
        step_ms = 1e-6 * static_cast<double>(last_clock - first_clock) / static_cast<double>(steps - 1);
    return sums;
}

base::Result<std::vector<std::optional<LaneScore>>> Lanes::Impl::score(data::Part part, const std::atomic<int>* stop) {
    Engine& engine = *setup.engine;
    std::vector<bool> filled;
    for (const Lane& lane : table) filled.push_back(lane.recipe.has_value());
    MILLRACE_LET(scores, engine.evaluate(part, stop, filled));
    const std::vector<ops::MemberState> states = store().read_states();
    std::vector<std::optional<LaneScore>> results(table.size());
    for (std::size_t k = 0; k < table.size(); ++k) {
        if (!filled[k]) continue;
        LaneScore& result = results[k].emplace();
        result.epoch = states[k].epoch;
        if (k >= scores.size()) continue;
        const Score& score = scores[k];
        const std::string prefix = fmt::format("{}_", data::name_of(part));
        result.metrics[prefix + "loss"] = score.loss;
        if (engine.model().classifies()) result.metrics[prefix + "accuracy"] = score.accuracy;
        for (const models::Figure& figure : score.more.figures)
            result.metrics[part == data::Part::test ? prefix + figure.name : figure.name] = figure.value;
        result.diverged = !std::isfinite(score.loss);
    }
    return results;
}

/// What run_epoch() adds to a score: of the training alone.
std::map<std::string, double> Lanes::Impl::training_metrics(const MemberSums& sums) const {
    std::map<std::string, double> metrics{{"train_loss", sums.mean_loss()},
                                          {"parameters", static_cast<double>(store().trainable_count())},
                                          {"step_ms", step_ms / static_cast<double>(table.size())}};
    if (setup.engine->model().classifies()) metrics["train_accuracy"] = sums.accuracy();
    return metrics;
}

base::Result<std::vector<std::string>> Lanes::metrics() {
    for (int lane = 0; lane < lanes(); ++lane)
        if (impl_->at(lane).recipe) MILLRACE_TRY(impl_->settle(lane));
    std::vector<std::string> names;
    if (!impl_->any_filled()) return names;
    MILLRACE_LET(scores, impl_->score(data::Part::validation, nullptr));
    const auto first = std::ranges::find_if(scores, [](const auto& score) { return score.has_value(); });
    (*first)->metrics.merge(impl_->training_metrics({}));
    for (const auto& [name, value] : (*first)->metrics) names.push_back(name);
    return names;
}

base::Result<std::vector<std::optional<LaneScore>>> Lanes::run_epoch(const std::atomic<int>* stop) {
    for (int lane = 0; lane < lanes(); ++lane)
        if (impl_->at(lane).recipe) MILLRACE_TRY(impl_->settle(lane));
    if (!impl_->any_filled()) return Scores(impl_->table.size());
    bool stopped = stop != nullptr && stop->load(std::memory_order_relaxed) != 0;
    if (stopped) return Scores{};
    // Until all is scored: an error leaves part of an epoch behind, too.
    for (Impl::Lane& lane : impl_->table) lane.partial = lane.recipe.has_value();
    MILLRACE_LET(sums, impl_->train(stop, stopped));
    if (stopped) return Scores{};
    MILLRACE_LET(scores, impl_->score(data::Part::validation, stop));
    if (stop != nullptr && stop->load(std::memory_order_relaxed) != 0) return Scores{};
    for (std::size_t k = 0; k < scores.size(); ++k) {
        impl_->table[k].partial = false;
        if (!scores[k]) continue;
        const MemberSums& member = sums.members[k];
        scores[k]->metrics.merge(impl_->training_metrics(member));
        scores[k]->diverged = scores[k]->diverged || member.steps == 0 || !std::isfinite(member.mean_loss());
    }
    return scores;
}

base::Result<std::vector<std::optional<LaneScore>>> Lanes::test() {
    if (impl_->setup.engine->source().samples(data::Part::test) == 0)
        return std::vector<std::optional<LaneScore>>(static_cast<std::size_t>(lanes()));
    for (int lane = 0; lane < lanes(); ++lane)
        if (impl_->at(lane).recipe) MILLRACE_TRY(impl_->settle(lane));
    return impl_->score(data::Part::test, nullptr);
}

}  // namespace millrace::train
