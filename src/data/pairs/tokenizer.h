#pragma once
// Words and parts of words as numbers: a SentencePiece model, trained on a data set's own text. A build without SentencePiece has
// this class too, but neither trains nor loads one (tokenizer_absent.cpp).

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace::data {

class Tokenizer {
public:
    static constexpr std::int32_t kUnknown = 0;  ///< what the training text never had
    static constexpr std::int32_t kEnd = 1;      ///< stands behind a sentence; encode() does not add it

    /// Whether this build can train and load one.
    static bool available();
    /// Byte pairs merged until there are `vocabulary` tokens (at most: a small text gives fewer). The same texts give the same
    /// model. Refuses texts without a character, and a vocabulary that cannot hold every character.
    static base::Result<Tokenizer> train(const std::vector<std::string>& texts, std::int32_t vocabulary);
    /// From what bytes() gave; `place` names it in errors.
    static base::Result<Tokenizer> load(std::string bytes, const std::string& place);

    Tokenizer(Tokenizer&&) noexcept;
    Tokenizer& operator=(Tokenizer&&) noexcept;
    ~Tokenizer();

    [[nodiscard]] const std::string& bytes() const { return bytes_; }  ///< a SentencePiece model file
    [[nodiscard]] std::int32_t vocabulary() const { return vocabulary_; }

    /// Numbers in [0, vocabulary()); none for a text of white space. Bytes that are no UTF-8 become unknown.
    [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const;
    /// The text of the tokens before the first kEnd. Numbers outside the vocabulary are left out.
    [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;

private:
    struct Model;
    Tokenizer(std::unique_ptr<Model> model, std::string bytes, std::int32_t vocabulary);

    std::unique_ptr<Model> model_;
    std::string bytes_;
    std::int32_t vocabulary_ = 0;
};

}  // namespace millrace::data
