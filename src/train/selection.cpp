#include "train/selection.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "models/weights.h"

namespace millrace::train {

base::Status Selection::on_epoch(EpochReport& report) {
    MILLRACE_LET(validation, loop_.engine().evaluate(data::Part::validation));
    report.validation = std::move(validation);
    report.best = note_best(report);
    return base::ok();
}

/// The best member decides, one whose loss is not finite or that its scoring refuses never. Without validation data the newest
/// weights are the best known; where domains are learned one after the other, what was learned last counts.
bool Selection::note_best(const EpochReport& report) {
    BestSoFar now{true, -std::numeric_limits<double>::infinity(), 0, report.epoch, report.step, {}, {}};
    for (const Score& score : report.validation) {
        const double value = merit(score, loop_.setup().settings.checkpoint.best_metric);
        if (std::isfinite(score.loss) && score.more.refused.empty() && value > now.value) {
            now.value = value;
            now.member = static_cast<std::uint32_t>(now.losses.size());
        }
        if (!score.more.refused.empty()) refused_ = score.more.refused;
        now.losses.push_back(score.loss);
        now.accuracies.push_back(score.accuracy);
    }
    if (report.validation.empty()) now.value = 0;
    if (!std::isfinite(now.value)) return false;
    const bool newest = report.validation.empty() || !loop_.setup().settings.domains.empty();
    if (best_.any && !newest && !(now.value > best_.value)) return false;
    best_before_ = std::exchange(best_, std::move(now));
    scores_before_ = std::exchange(scores_, report.validation);
    return true;
}

void Selection::undo() {
    best_ = best_before_;
    scores_ = scores_before_;
}

/// The best weights on the test part; without one, the scores on what was set aside to select by. None after a stop.
base::Result<std::vector<Score>> Selection::test_scores(RunResult& result) {
    if (loop_.stop() != nullptr && loop_.stop()->load() != 0) return std::vector<Score>{};
    MILLRACE_LET(best, io::load_checkpoint(folder_, io::LoadParts::kModelOnly));
    MILLRACE_LET(found, engine_of_(best));
    Engine& engine = *found;
    MILLRACE_TRY(models::load_weights(engine.store(), best, false, engine.model().attachments()));
    result.tested = engine.source().samples(data::Part::test) > 0;
    const data::Part part = result.tested ? data::Part::test : data::Part::validation;
    result.held = engine.source().samples(part);
    if (!result.tested && !scores_.empty()) return scores_;
    return engine.evaluate(part, loop_.stop());
}

base::Status Selection::on_stop(RunResult& result) {
    if (result.stopped) return base::ok();
    const auto members = static_cast<std::size_t>(loop_.engine().members());
    if (result.dropped == result.step * members)
        return base::Error{
            fmt::format(
                "all {} steps were dropped because a value was not finite, so nothing was learned; try a smaller optim.lr, or "
                "--set train.debug_nonfinite=true, which names the operator",
                result.step),
            result.run, 1};
    if (!best_.any && !refused_.empty())
        return base::Error{"there are no best weights to test; the newest are in checkpoints/last. " + refused_, result.run, 1};
    if (!best_.any)
        return base::Error{
            "the validation loss was never finite, so there are no best weights to test; the newest are in checkpoints/last. Try "
            "a smaller optim.lr, or --set train.debug_nonfinite=true, which names the operator",
            result.run, 1};
    MILLRACE_LET(scores, test_scores(result));
    if (scores.empty() && loop_.stop() != nullptr) result.signal = loop_.stop()->load();
    result.stopped = result.signal != 0;
    if (result.stopped) return base::ok();
    if (!best_.losses.empty()) result.chosen = best_.member;
    const double nothing = std::numeric_limits<double>::quiet_NaN();
    for (std::size_t k = 0; k < members; ++k) {
        const bool validated = k < best_.accuracies.size();
        MemberResult member;
        member.validation_accuracy = validated ? best_.accuracies[k] : nothing;
        member.validation_loss = validated ? best_.losses[k] : nothing;
        member.best_epoch = best_.epoch;
        member.test_accuracy = result.tested ? scores[k].accuracy : nothing;
        member.test_loss = result.tested ? scores[k].loss : nothing;
        if (k < scores.size()) member.more = scores[k].more;
        result.members.push_back(std::move(member));
    }
    return base::ok();
}

}  // namespace millrace::train
