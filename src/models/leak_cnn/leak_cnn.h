#pragma once
// Finds a class of sounds in short windows of recordings: three convolutions along the frequency bands, a hidden layer, a head
// for the classes and one that only says whether the class looked for is there. Many windows of a recording vote (voting.h).
//
// The kernels are 3 x 3 in checkpoints, as the original has them. A window has one frame of time, so their outer columns meet
// padding alone and are not computed.

#include <vector>

#include "models/leak_cnn/voting.h"
#include "models/model.h"
#include "nn/conv.h"
#include "nn/dense.h"

namespace millrace::models {

enum class LossKind : std::uint8_t { plain, weighted, focal };

struct LeakCnnConfig {
    std::int32_t bands = 64, hidden = 256;
    std::vector<std::int32_t> channels{32, 64, 128};
    float dropout = 0.25f;
    LossKind loss = LossKind::weighted;
    bool balanced = false;  ///< plain: with train.class_weights
    // One value, or one of each member.
    std::vector<double> boost{1};        ///< weighted: factor on the weight of the positive class
    std::vector<double> gamma{2};        ///< focal
    std::vector<double> alpha{0.75};     ///< focal: weight of the positive class; the others share what is left of 1
    std::vector<double> auxiliary{0.5};  ///< weight of the second head's loss; 0: it has no part in training and voting
    data::Classes classes{{"NOLEAK", "LEAK"}, {}, 1, {40, 2}};
    std::shared_ptr<const data::Scaling> scaling;
};

class LeakCnn final : public Model {
public:
    explicit LeakCnn(LeakCnnConfig config) : config_(std::move(config)) {}

    base::Status declare(tape::Store& store) override;
    [[nodiscard]] data::Fields wants() const override;  ///< features and label
    Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override;
    void append_loss_totals(tape::Builder& builder, data::BatchSource& source, std::int32_t rows) const override;
    [[nodiscard]] std::unique_ptr<Scoring> scoring(data::Part part, int member) const override;
    [[nodiscard]] std::vector<Attachment> attachments() const override;  ///< classes and scaling
    [[nodiscard]] std::string description() const override;
    /// How a member's windows vote. The threshold is stored, except on validation, which chooses it.
    [[nodiscard]] VotingRules rules(data::Part part, int member) const;

private:
    /// Focal losses and balanced ones are means over rows, the others over the weights of their classes.
    [[nodiscard]] bool by_rows() const { return config_.loss == LossKind::focal || config_.balanced; }

    LeakCnnConfig config_;
    tape::Store* store_ = nullptr;
    std::vector<nn::Conv> convs_;
    nn::Dense hidden_, classes_, leak_;
    // Values of the member: fixed parameters, so that every member has its own and checkpoints keep them.
    tape::ParameterId weights_ = tape::kNoParameter, gamma_ = tape::kNoParameter;  ///< of the classes' loss
    tape::ParameterId auxiliary_ = tape::kNoParameter, threshold_ = tape::kNoParameter;
};

/// The weight of each class in a member's loss. Balanced: balanced_weights(). Weighted: these over their mean, times `boost` for
/// the positive one. 1 for classes that do not occur.
std::vector<double> class_weights(const LeakCnnConfig& config, std::size_t member);

}  // namespace millrace::models
