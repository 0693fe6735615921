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

}  // namespace millrace::data
