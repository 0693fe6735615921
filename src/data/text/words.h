#pragma once
// Words as numbers. A text is cut at ASCII white space and A to Z become a to z; other letters keep their case. Numbers 0 to 3
// are <pad>, <unk>, <bos> and <eos>, then come the most frequent words of the training text, of equally frequent ones the
// earlier.
//
// The bytes of such a list: "millrace-words 1 VOCABULARY\n", then a line for each word from number 4 on.

#include "data/text/tokenizer.h"

namespace millrace::data {

inline constexpr std::int32_t kSpecialWords = 4;  ///< <pad>, <unk>, <bos>, <eos>
inline constexpr std::int32_t kUnknownWord = 1;   ///< the only one of them that encode() gives
inline constexpr std::int32_t kEndWord = 3;
inline constexpr std::int32_t kMostWords = 1 << 24;  ///< of a vocabulary

/// Refuses a text without words and a vocabulary outside (kSpecialWords, kMostWords].
TokenModelResult count_words(std::string_view text, std::int32_t vocabulary);
/// Refuses bytes that count_words() cannot have made.
TokenModelResult load_words(std::string bytes, const std::string& place);
/// Whether bytes begin as a list of words does.
bool are_words(std::string_view bytes);

}  // namespace millrace::data
