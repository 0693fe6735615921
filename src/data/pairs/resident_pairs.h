#pragma once
// A set of pairs whose vectors live in device memory. Shuffling and gathering happen there, inside the step.

#include <array>
#include <memory>

#include "data/pairs/pair_tokens.h"
#include "data/pairs/pairs.h"
#include "data/resident_source.h"

namespace millrace::data {

class PairSource final : public ResidentSource {
public:
    /// Fields are vector and goal. `tokens`: the set's sentences as numbers, where the model reads them: then also input_tokens,
    /// input_length, target_tokens and target_length. Pairs have no test part.
    explicit PairSource(std::shared_ptr<const PairSet> set, PairTokens tokens = {},
                        const std::shared_ptr<const Tokenizer>& tokenizer = {});

    [[nodiscard]] std::int32_t dimensions() const { return static_cast<std::int32_t>(set_->dimensions); }
    [[nodiscard]] const PairSet& set() const { return *set_; }
    /// Which pair of the set stands at `position` of a pass over `part` that is not shuffled.
    [[nodiscard]] std::uint32_t pair_at(Part part, std::int32_t position) const;
    [[nodiscard]] std::vector<std::string> texts_at(Part part, std::int32_t position) const override;  ///< input, target

    std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows,
                                     std::span<const Wanted> fields) override;
    using BatchSource::gather;

private:
    /// Refuses a set without training pairs.
    base::Status declare_tables(tape::Store& store) override;

    std::shared_ptr<const PairSet> set_;
    PairTokens tokens_;
    std::vector<tensor::View> tables_;             ///< by field, [1,1,count,width]
    std::array<tensor::View, kPartCount> subset_;  ///< order_ on the device
};

}  // namespace millrace::data
