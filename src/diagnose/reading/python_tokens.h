#pragma once
// Cuts the text of a Python program into tokens, as far as finding calls needs it: comments are passed over, strings are one
// sign, and the fields of f-strings are code again. Linear in the length of the text.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::diagnose {

struct PythonToken {
    enum class Kind {
        kName,     ///< identifiers and keywords
        kSign,     ///< anything else: one character, ":=", the digits of a number; a string is a quote
        kLineEnd,  ///< of a logical line
        kEnd,
        kBroken,  ///< no Python: a string or bracket that nothing closes, one that nothing opened, too many within each other
    };
    Kind kind = Kind::kEnd;
    std::string_view text;
    int line = 1;
    int column = 0;         ///< of the logical line, tabs to multiples of eight
    std::size_t depth = 0;  ///< brackets and strings that the token stands in

    [[nodiscard]] bool is(char sign) const { return kind == Kind::kSign && text.size() == 1 && text[0] == sign; }
    [[nodiscard]] bool is_name(std::string_view name) const { return kind == Kind::kName && text == name; }
};

/// Line ends as Python sees them, without a byte order mark.
std::string with_plain_line_ends(std::string_view text);

class PythonTokens {
public:
    /// `text` has plain line ends and outlives the tokens.
    explicit PythonTokens(std::string_view text) : text_(text) {}

    /// After kEnd and kBroken the same again.
    PythonToken next();

private:
    /// What is open: a bracket, a string with fields, one of its fields, or what follows a field's colon.
    enum class Place : char { kBracket, kString, kField, kFormat };
    struct Open {
        Place place;
        char closes;  ///< the bracket or quote that ends it
        bool triple, raw;
    };

    [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }
    [[nodiscard]] char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
    [[nodiscard]] bool in_literal() const;
    bool pass_blanks();
    void begin_line();
    void pass_comment();
    bool ends_string(const Open& string) const;
    bool pass_plain_string(const Open& string);
    bool pass_literal(PythonToken& token);
    void pass_escape(bool raw);
    bool take_string(std::size_t prefix);
    bool take_sign(PythonToken& token);
    PythonToken taken(PythonToken::Kind kind, std::size_t length);
    PythonToken broken();

    std::string_view text_;
    std::size_t at_ = 0;
    int line_ = 1, column_ = 0;
    bool line_begins_ = true, broken_ = false;
    std::vector<Open> open_;
};

}  // namespace millrace::diagnose
