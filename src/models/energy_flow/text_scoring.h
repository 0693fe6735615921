#pragma once
// How well the text bridge speaks, beside what SurfaceScoring says.

#include <memory>
#include <string>
#include <string_view>

#include "data/text/tokenizer.h"
#include "models/energy_flow/surface_scoring.h"
#include "ops/text/text.h"

namespace millrace::models {

/// Words that two sentences share, as a share of the words of both: 2 common / (words of a + words of b), each word as often as
/// it occurs; letter case and punctuation do not count. 1 for two sentences without words.
double word_overlap(std::string_view a, std::string_view b);

class TextScoring final : public Scoring {
public:
    /// Order of the tensors of a batch, behind those of SurfaceScoring: [B,S] encoded surface, [1,kTallyColumns] tally, [B,T]
    /// targets, [B,1] lengths, [B,T] answers, [B,1] lengths.
    enum Tensor { encoded = SurfaceScoring::tensors, tally, targets, target_lengths, answers, answer_lengths, tensors };

    TextScoring(const EnergyFlowConfig& config, std::shared_ptr<const data::Tokenizer> tokenizer)
        : surface_(config), tokenizer_(std::move(tokenizer)) {}
    void add(const std::vector<std::vector<double>>& batch) override;
    [[nodiscard]] Scored finish() const override;

private:
    SurfaceScoring surface_;
    std::shared_ptr<const data::Tokenizer> tokenizer_;
    double squares_ = 0, cells_ = 0;  ///< of the encoder's distance from the mapper
    double token_loss_ = 0, tokens_ = 0, right_ = 0;
    double overlap_ = 0;  ///< sum over sentences
    std::int64_t sentences_ = 0, exact_ = 0;
    std::string example_target_, example_answer_;  ///< of the first sentence
};

}  // namespace millrace::models
