#pragma once
// A text whose tokens live in device memory. Windows are cut, shuffled and gathered there, inside the step.

#include <array>
#include <memory>

#include "base/rank.h"
#include "data/text/text_set.h"

namespace millrace::data {

/// Samples are windows of T + 1 tokens, of which the first T are inputs and the last T targets; neighbours overlap by one token.
/// Sample i begins at token i * T + shift. In training each member draws its shift, from 0 to T - 1, anew for every epoch, and
/// there are as many samples as fit for every shift. In evaluation the shift is 0 and the last window may be shorter: every token
/// but the first is a target exactly once.
class ResidentText final : public BatchSource {
public:
    /// `length` is T. `rank` says which share of the training part is this machine's.
    ResidentText(std::shared_ptr<const TextSet> set, std::int32_t length, base::Rank rank = {});

    [[nodiscard]] std::int32_t samples(Part part) const override { return rank_of(part).share(whole(part)); }
    /// tokens [T + 1], zeros behind a short window, and length [1]: how many of the T targets there are.
    [[nodiscard]] const Fields& fields() const override { return fields_; }
    /// Of the window with shift 0.
    [[nodiscard]] std::vector<std::string> texts_at(Part part, std::int32_t position) const override;
    [[nodiscard]] std::vector<std::string> notes() const override;
    [[nodiscard]] const TextSet& set() const { return *set_; }
    /// Samples of the part on all machines together.
    [[nodiscard]] std::int32_t whole(Part part) const;

    base::Status declare(tape::Store& store) override;
    base::Status upload(tape::Store& store) override;
    std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows,
                                     std::span<const Wanted> fields) override;
    using BatchSource::gather;

private:
    [[nodiscard]] base::Rank rank_of(Part part) const { return part == Part::train ? rank_ : base::Rank{}; }

    std::shared_ptr<const TextSet> set_;
    std::int32_t length_;
    base::Rank rank_;
    Fields fields_;
    std::array<tensor::View, kPartCount> streams_;  ///< i32 [1,1,tokens,1]
};

}  // namespace millrace::data
