#pragma once
// A folder with train.txt, valid.txt and test.txt in UTF-8, or one file that is cut into such parts. Each becomes one stream of
// tokens; lines have no meaning.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/batch_source.h"
#include "data/folder.h"
#include "data/text/tokenizer.h"
#include "ops/gather/gather.h"

namespace millrace::data {

inline constexpr std::array<const char*, kPartCount> kTextFiles{"train.txt", "valid.txt", "test.txt"};  ///< by part

struct TextFiles {
    Path folder;                                ///< or the one file
    std::array<std::string, kPartCount> texts;  ///< by part, UTF-8
};
/// One file is cut at the white space nearest to the shares: the last `test` of its bytes test, `validation` before them
/// validate. Refuses a missing file, a text or part without a word and what is not UTF-8, with its name and line. A byte order
/// mark is left out.
Result<TextFiles> read_text_files(const Path& path, double validation = 0.1, double test = 0.1);

/// One file, with what read_text_files() refuses.
Result<std::string> read_text_file(const Path& path);

/// A tokenizer of the training text alone.
Result<Tokenizer> word_tokenizer(const TextFiles& files, std::int32_t vocabulary);
Result<Tokenizer> piece_tokenizer(const TextFiles& files, std::int32_t vocabulary);

/// One of several texts that make up a set.
struct TextDomain {
    std::string name;                              ///< the folder's
    std::array<std::int32_t, kPartCount> first{};  ///< token of the set's part, by part
    std::array<std::int32_t, kPartCount> tokens{};
    std::vector<TextStatistics> statistics;  ///< by part, of the domain's own training tokens
};

struct TextSet {
    std::string name;  ///< the folder's
    std::shared_ptr<const Tokenizer> tokenizer;
    std::int32_t vocabulary = 0;                              ///< tokens are below; the tokenizer may have fewer
    std::array<std::vector<std::int32_t>, kPartCount> parts;  ///< tokens
    std::vector<TextStatistics> statistics;                   ///< by part; empty: the domains have their own
    std::vector<TextDomain> domains = {};                     ///< one behind the other in every part; empty: one text

    [[nodiscard]] const std::vector<std::int32_t>& tokens(Part part) const { return parts[index_of(part)]; }
    [[nodiscard]] std::uint64_t checksum() const;  ///< of all tokens
};

/// The texts as tokens. Refuses a tokenizer of more than `vocabulary` tokens and texts that give too few for windows of `length`:
/// two windows to train on and two tokens elsewhere; a text that is empty is a part that is not there.
Result<TextSet> number_texts(const TextFiles& files, std::shared_ptr<const Tokenizer> tokenizer, std::int32_t vocabulary,
                             std::int32_t length);

/// Texts of one tokenizer one behind the other, as domains of one set. Refuses parts of more than 2^31 - 1 tokens together.
Result<TextSet> join_texts(const std::vector<TextSet>& texts);

/// Counts tokens and unknown ones, and asks the unigram model of the training part, (count + 1) / (tokens + vocabulary), for each
/// part's perplexity over all tokens but the first, which nothing predicts; 0 without a training part.
std::vector<TextStatistics> measure_text(const TextSet& set);

/// How the domains of a set are learned, one after the other, and scored.
struct TextStages {
    std::int32_t windows = 0;  ///< of an epoch, drawn from all of the domain; 0: as many as the smallest domain has
    std::uint32_t epochs = 1;  ///< of each domain; the last one is learned on
    std::int32_t scored = 0;   ///< first windows of each domain, or of the one text, that validation and test have; 0: all
};

/// A text whose tokens live in device memory. Samples are windows of T + 1 tokens, of which the first T are inputs and the last T
/// targets; neighbours overlap by one token. Sample i begins at token i * T + shift. In training each member draws its shift,
/// from 0 to T - 1, anew for every epoch, and there are as many samples as fit for every shift. In evaluation the shift is 0 and
/// the last window may be shorter: every token but the first is a target exactly once. No window reaches from one domain into the
/// next.
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
