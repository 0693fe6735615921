#include "train/patience.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace millrace::train {

Patience::Patience(Loop& loop, Staleness state, bool was_complete) : loop_(loop), state_(std::move(state)) {
    if (was_complete) end_if_exhausted();
}

base::Status Patience::on_epoch(EpochReport& report) {
    if (report.validation.empty()) return base::ok();
    best_before_ = state_.best;
    state_.best.resize(report.validation.size(), std::numeric_limits<double>::quiet_NaN());
    bool improved = false;
    for (std::size_t k = 0; k < report.validation.size(); ++k) {
        const Score& score = report.validation[k];
        const double value = merit(score, loop_.setup().settings.checkpoint.best_metric);
        // The first finite value of a member is an improvement on NaN.
        if (!std::isfinite(score.loss) || !std::isfinite(value) || value <= state_.best[k]) continue;
        state_.best[k] = value;
        improved = true;
    }
    state_.evaluations = improved ? 0 : state_.evaluations + 1;
    end_if_exhausted();
    return base::ok();
}

void Patience::end_if_exhausted() {
    const std::uint32_t patience = loop_.setup().settings.patience;
    if (patience == 0 || state_.evaluations < patience) return;
    loop_.end(fmt::format("validation did not improve in {} evaluation{}{} (train.patience = {})", state_.evaluations,
                          state_.evaluations == 1 ? "" : "s",
                          state_.best.size() > 1 ? fmt::format(" of {} members", state_.best.size()) : "", patience));
}

}  // namespace millrace::train
