#pragma once
// How well a language model predicts a part of a text: exact over all of its tokens, beside what frequencies alone give.

#include <optional>

#include "data/fields.h"
#include "models/scoring.h"

namespace millrace::models {

/// Batches: the tally of token_cross_entropy.
class PerplexityScoring final : public Scoring {
public:
    explicit PerplexityScoring(std::optional<data::TextStatistics> text) : text_(text) {}
    void add(const std::vector<std::vector<double>>& tensors) override;
    [[nodiscard]] Scored finish() const override;

private:
    std::optional<data::TextStatistics> text_;  ///< of the part; absent where the source does not say
    double loss_ = 0, tokens_ = 0, right_ = 0;
};

}  // namespace millrace::models
