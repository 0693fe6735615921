#pragma once
// How well surfaces say what the teacher says: cosine and retrieval in the teacher's space, beside what the mapper alone would
// have reached, and what the flows did meanwhile. Beside that how well the text bridge speaks.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/text/tokenizer.h"
#include "models/energy_flow/config.h"
#include "models/energy_flow/ops/flow.h"
#include "models/model.h"
#include "ops/text/text.h"

namespace millrace::models {

/// Share of the rows of `found` [n, width] that no target but their own (row i of `targets` [n, width]) is nearer to by cosine.
/// Equal targets count as one; a row that is zero or not finite has found nothing. `targets` of length 1.
double retrieval_at_1(const std::vector<float>& found, const std::vector<float>& targets, std::size_t width);
/// Mean over the rows of the cosine between row i of both, [n, width]; rows of length 0 count as 0.
double mean_cosine(const std::vector<float>& found, const std::vector<float>& targets, std::size_t width);

class SurfaceScoring final : public Scoring {
public:
    /// Order of the tensors of a batch: [B,E] vectors read back from the surface and from the mapper's energies, [B,E] targets,
    /// [B,S] surface, energies and goals, [1,kFlowCounters] counters.
    enum Tensor { found, mapper_found, targets, surface, energies, goals, counters, tensors };

    explicit SurfaceScoring(const EnergyFlowConfig& config) : config_(config) {}
    void add(const std::vector<std::vector<double>>& batch) override;
    [[nodiscard]] Scored finish() const override;

private:
    EnergyFlowConfig config_;
    std::vector<float> found_, mapper_found_, targets_;  ///< [n, E]
    double mapper_loss_ = 0;                             ///< sum over rows
    double steps_ = 0;                                   ///< steps used, weighted by the batch's rows
    std::int64_t covered_ = 0, cells_ = 0;
    std::array<std::int64_t, ops::kFlowCounters> counters_{};
};

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
