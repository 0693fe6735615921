#pragma once
// A set of pairs whose vectors live in device memory. Shuffling and gathering happen there, inside the step.

#include <array>
#include <memory>

#include "data/batch_source.h"
#include "data/pairs/pair_tokens.h"
#include "data/pairs/pairs.h"

namespace millrace::data {

class PairSource final : public BatchSource {
public:
    /// With the set's sentences as numbers when somebody wants them.
    explicit PairSource(std::shared_ptr<const PairSet> set, PairTokens tokens = {});

    [[nodiscard]] std::int32_t samples(Part part) const override;  ///< pairs have no test part: 0
    [[nodiscard]] std::int32_t features() const override { return dimensions(); }
    [[nodiscard]] std::int32_t classes() const override { return dimensions(); }  ///< width of a goal
    [[nodiscard]] std::int32_t dimensions() const { return static_cast<std::int32_t>(set_->dimensions); }
    [[nodiscard]] const PairSet& set() const { return *set_; }
    /// Which pair of the set stands at `position` of a pass over `part` that is not shuffled.
    [[nodiscard]] std::uint32_t pair_at(Part part, std::int32_t position) const;
    [[nodiscard]] std::pair<std::string, std::string> texts_at(Part part, std::int32_t position) const override;

    /// Declares the source's buffers, before Store::allocate(), and fills them, after it. Refuses a set without training pairs.
    base::Status declare(tape::Store& store) override;
    base::Status upload(tape::Store& store) override;
    tensor::View gather(tape::Builder& builder, Part part, const tensor::View& x) override;

    [[nodiscard]] std::int32_t tokens(Side side) const override { return table_of(side).tokens; }
    void gather_sentences(tape::Builder& builder, Part part, Side side, const tensor::View& ids,
                          const tensor::View& lengths) override;

    /// Appends a record that fills `out` [K,1,rows,dimensions] (real or stat, any row stride) with the vectors of the next rows
    /// of the pass over `part`, each member in its own order when the builder builds a training program. The two give rows of the
    /// same pairs and take no operator number. `part` must not be empty.
    void gather_inputs(tape::Builder& builder, Part part, const tensor::View& out) const;
    void gather_targets(tape::Builder& builder, Part part, const tensor::View& out) const;

private:
    void gather_from(tape::Builder& builder, Part part, const tensor::View& table, const tensor::View& out) const;

    [[nodiscard]] const TokenTable& table_of(Side side) const { return tokens_[static_cast<std::size_t>(side)]; }

    static constexpr int kParts = 2;  ///< train, validation
    std::shared_ptr<const PairSet> set_;
    PairTokens tokens_;
    std::array<tensor::View, kSideCount> ids_, lengths_;   ///< i32 [1,1,count,tokens], [1,1,count,1]; absent without sentences
    tensor::View inputs_, targets_;                        ///< stat [1,1,count,dimensions]
    std::array<std::vector<std::int32_t>, kParts> order_;  ///< positions in the set
    std::array<tensor::View, kParts> subset_;              ///< the same on the device, i32 [1,1,samples,1]
};

}  // namespace millrace::data
