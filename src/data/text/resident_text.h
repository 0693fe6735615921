#pragma once
// A text whose tokens live in device memory. Windows are cut, shuffled and gathered there, inside the step.

#include <array>
#include <memory>

#include "data/domain.h"
#include "data/resident_source.h"
#include "data/text/text_set.h"
#include "ops/gather/gather.h"

namespace millrace::data {

/// How the domains of a set are learned, one after the other, and scored.
struct TextStages {
    std::int32_t windows = 0;  ///< of an epoch, drawn from all of the domain; 0: as many as the smallest domain has
    std::uint32_t epochs = 1;  ///< of each domain; the last one is learned on
    std::int32_t scored = 0;   ///< first windows of each domain, or of the one text, that validation and test have; 0: all
};

/// Samples are windows of T + 1 tokens, of which the first T are inputs and the last T targets; neighbours overlap by one token.
/// Sample i begins at token i * T + shift. In training each member draws its shift, from 0 to T - 1, anew for every epoch, and
/// there are as many samples as fit for every shift. In evaluation the shift is 0 and the last window may be shorter: every token
/// but the first is a target exactly once. No window reaches from one domain into the next.
class ResidentText final : public ResidentSource {
public:
    /// Fields are tokens [T + 1], zeros behind a short window, and length [1]: how many of the T targets there are. `length` is
    /// T. stages.windows is at most that of the smallest domain.
    ResidentText(std::shared_ptr<const TextSet> set, std::int32_t length, TextStages stages = {});

    /// Of the window with shift 0.
    [[nodiscard]] std::vector<std::string> texts_at(Part part, std::int32_t position) const override;
    [[nodiscard]] std::vector<std::string> notes() const override;
    [[nodiscard]] const TextSet& set() const { return *set_; }
    [[nodiscard]] std::int32_t samples(Part part) const override { return samples_[index_of(part)]; }
    /// Empty: the set is one text.
    [[nodiscard]] const std::vector<Domain>& domains() const { return domains_; }

    std::vector<tensor::View> gather(tape::Builder& builder, Part part, std::int32_t rows,
                                     std::span<const Wanted> fields) override;
    using BatchSource::gather;

private:
    base::Status declare_tables(tape::Store& store) override;

    std::shared_ptr<const TextSet> set_;
    std::int32_t length_;
    TextStages stages_;
    std::vector<Domain> domains_;
    std::array<std::vector<ops::TokenRange>, kPartCount> ranges_;  ///< one for each domain
    std::array<std::int32_t, kPartCount> samples_{};
    std::array<tensor::View, kPartCount> streams_;  ///< i32 [1,1,tokens,1]
    std::array<tensor::View, kPartCount> tables_;   ///< i32 [1,1,domains,4]: ranges_
};

}  // namespace millrace::data
