#pragma once
// A set of pairs whose vectors live in device memory. Shuffling and gathering happen there, inside the step.

#include <array>
#include <memory>

#include "base/rank.h"
#include "data/batch_source.h"
#include "data/pairs/pair_tokens.h"
#include "data/pairs/pairs.h"

namespace millrace::data {

class PairSource final : public BatchSource {
public:
    /// `tokens`: the set's sentences as numbers, where the model reads them. `rank` says which share of the training part is this
    /// machine's.
    explicit PairSource(std::shared_ptr<const PairSet> set, PairTokens tokens = {},
                        const std::shared_ptr<const Tokenizer>& tokenizer = {}, base::Rank rank = {});

    /// Pairs have no test part: 0.
    [[nodiscard]] std::int32_t samples(Part part) const override { return rank_of(part).share(whole(part)); }
    /// vector and goal; with tokens also input_tokens, input_length, target_tokens, target_length.
    [[nodiscard]] const Fields& fields() const override { return fields_; }
    [[nodiscard]] std::int32_t dimensions() const { return static_cast<std::int32_t>(set_->dimensions); }
    [[nodiscard]] const PairSet& set() const { return *set_; }
    /// Which pair of the set stands at `position` of a pass over `part` that is not shuffled.
    [[nodiscard]] std::uint32_t pair_at(Part part, std::int32_t position) const;
    [[nodiscard]] std::vector<std::string> texts_at(Part part, std::int32_t position) const override;  ///< input, target

    /// Declares the source's buffers, before Store::allocate(), and fills them, after it. Refuses a set without training pairs.
    base::Status declare(tape::Store& store) override;
    base::Status upload(tape::Store& store) override;
    std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows,
                                     std::span<const Wanted> fields) override;
    using BatchSource::gather;

private:
    static constexpr int kParts = 2;  ///< train, validation
    /// Samples of the part on all machines together.
    [[nodiscard]] std::int32_t whole(Part part) const {
        return part == Part::test ? 0 : static_cast<std::int32_t>(order_[index_of(part)].size());
    }
    [[nodiscard]] base::Rank rank_of(Part part) const { return part == Part::train ? rank_ : base::Rank{}; }
    std::shared_ptr<const PairSet> set_;
    PairTokens tokens_;
    base::Rank rank_;
    Fields fields_;
    std::vector<tensor::View> tables_;                     ///< by field, [1,1,count,width]
    std::array<std::vector<std::int32_t>, kParts> order_;  ///< positions in the set
    std::array<tensor::View, kParts> subset_;              ///< the same on the device, i32 [1,1,samples,1]
};

}  // namespace millrace::data
