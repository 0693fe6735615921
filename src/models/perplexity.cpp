#include "models/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/text/text.h"

namespace millrace::models {

void PerplexityScoring::add(const std::vector<std::vector<double>>& tensors) {
    const std::vector<double>& tally = tensors.front();
    loss_ += tally[ops::tally::loss];
    tokens_ += tally[ops::tally::tokens];
    right_ += tally[ops::tally::right];
}

Scored PerplexityScoring::finish() const {
    Scored scored;
    const double tokens = std::max(tokens_, 1.0), perplexity = std::exp(loss_ / tokens), accuracy = right_ / tokens;
    scored.figures = {{"perplexity", perplexity}, {"token_accuracy", accuracy}};
    scored.summary = fmt::format("perplexity {:.2f}, {:.2f} % of the tokens right", perplexity, 100 * accuracy);
    if (!text_) return scored;
    scored.figures.push_back({"unigram_perplexity", text_->unigram_perplexity});
    scored.figures.push_back({"unknown_share", text_->unknown_share()});
    scored.summary +=
        fmt::format(" (frequencies alone: {:.1f}; {:.2f} % unknown)", text_->unigram_perplexity, 100 * text_->unknown_share());
    return scored;
}

}  // namespace millrace::models
