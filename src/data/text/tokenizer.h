#pragma once
// Text as numbers, by one of two kinds of tokenizer: a SentencePiece model (words and parts of words) or a list of whole words.
// Both are made from a data set's own text and are stored in checkpoints as bytes.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/safetensors.h"

namespace millrace::data {

/// What one kind of tokenizer does.
struct TokenModel {
    std::string bytes;            ///< to store it; Tokenizer::load() takes them back
    std::int32_t vocabulary = 0;  ///< numbers are below
    std::int32_t unknown = 0;     ///< what the training text never had
    std::int32_t end = 0;         ///< ends a text; encode() does not give it

    virtual ~TokenModel() = default;
    [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
    /// `ids` are below `vocabulary`.
    [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
};

inline constexpr std::int32_t kSpecialWords = 4;     ///< <pad>, <unk>, <bos>, <eos>
inline constexpr std::int32_t kMostWords = 1 << 24;  ///< of a vocabulary

class Tokenizer {
public:
    static constexpr std::size_t kLongestText = std::size_t{64} << 10;  ///< bytes; train() leaves out longer texts
    static constexpr std::size_t kLongestWord = std::size_t{16} << 10;  ///< bytes; train() refuses longer words
    // Of a SentencePiece model; words have others.
    static constexpr std::int32_t kUnknown = 0;  ///< what the training text never had
    static constexpr std::int32_t kEnd = 1;      ///< stands behind a sentence; encode() does not add it

    /// Whether this build can train and load SentencePiece models (sentence_pieces_absent.cpp cannot).
    static bool available();
    /// Byte pairs merged until there are `vocabulary` tokens (at most: a small text gives fewer). The same texts give the same
    /// model. Refuses texts without a character, words above kLongestWord and a vocabulary that cannot hold every character.
    static base::Result<Tokenizer> train(const std::vector<std::string>& texts, std::int32_t vocabulary);
    /// The most frequent words of `text`. It is cut at ASCII white space and A to Z become a to z; other letters keep their case.
    /// Numbers 0 to 3 are <pad>, <unk>, <bos> and <eos>, then come the words, of equally frequent ones the earlier. Stored as
    /// "millrace-words 1 VOCABULARY\n", then a line for each word from number 4 on. vocabulary() is what was asked for, even when
    /// there are fewer words. Refuses a text without words and a vocabulary outside (kSpecialWords, kMostWords].
    static base::Result<Tokenizer> count_words(std::string_view text, std::int32_t vocabulary);
    /// Of either kind, from what bytes() gave; `place` names it in errors.
    static base::Result<Tokenizer> load(std::string bytes, const std::string& place);

    explicit Tokenizer(std::unique_ptr<const TokenModel> model) : model_(std::move(model)) {}
    [[nodiscard]] const std::string& bytes() const { return model_->bytes; }
    [[nodiscard]] std::int32_t vocabulary() const { return model_->vocabulary; }
    [[nodiscard]] std::int32_t unknown() const { return model_->unknown; }
    [[nodiscard]] std::int32_t end() const { return model_->end; }

    /// Numbers in [0, vocabulary()); none for a text of white space. SentencePiece takes bytes that are no UTF-8 for unknown.
    [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const { return model_->encode(text); }
    /// The text of the tokens before the first end(). Numbers outside the vocabulary are left out.
    [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;

private:
    static base::Result<Tokenizer> load_words(std::string bytes, const std::string& place);
    static base::Result<Tokenizer> load_pieces(std::string bytes, const std::string& place);

    std::unique_ptr<const TokenModel> model_;
};

/// The tokenizer that a checkpoint holds as the tensor of bytes `name`; null when it has none of that name.
base::Result<std::shared_ptr<const Tokenizer>> stored_tokenizer(const io::SafetensorsFile& file, const std::string& name);

}  // namespace millrace::data
