#pragma once
// Walks through JSON of any size in bounded memory: the caller asks for what it expects and passes over the rest. Takes what
// profilers really write, not only what the standard allows: NaN and Infinity as numbers, raw control bytes and broken escapes in
// texts. The JSON library's event interface refuses those, keeps a text of any length in memory, and takes (measured, 64 MB of a
// trace) 0.7 s for reading alone where this and everything that becomes of the events take 0.35 s.
//
//     scanner.enter_object();
//     while (scanner.next_key(key))
//         if (key == "name") name = scanner.text(); else scanner.skip();
//
// After a failure every question is answered with "no", so loops end; failed() says whether that was the reason.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/packing.h"

namespace millrace::diagnose {

class JsonScanner {
public:
    enum class Kind { kObject, kArray, kText, kNumber, kTrue, kFalse, kNull, kNothing };
    static constexpr std::size_t kDeepest = 256;
    static constexpr std::size_t kTextCap = std::size_t{64} << 10;  ///< what is longer is cut

    /// `moved` is called after each piece that was read. Both must outlive the scanner.
    explicit JsonScanner(io::ByteSource& source, std::function<void()> moved = {});

    /// What the next value is; kNothing after a failure, and at the end of the input.
    Kind peek();
    /// False, and the value is passed over, when the next value is something else.
    bool enter_object();
    bool enter_array();
    /// Moves to the next entry of the innermost object; its value must be taken or skipped. `key` lives until the next call of
    /// anything. False at its end.
    bool next_key(std::string_view& key);
    bool next_element();
    /// The next value when it is a text, else it is passed over and the text is empty. Lives until the next call of anything.
    std::string_view text();
    /// The next value as it is written when it is a number (or a text: some writers quote numbers), as for text().
    std::string_view number();
    void skip();
    /// Whether nothing but white space is left. Fails on anything else.
    bool at_end();

    [[nodiscard]] bool failed() const { return failure_ != Failure::kNone; }
    [[nodiscard]] bool torn() const { return failure_ == Failure::kTorn; }  ///< the input ended inside a value
    [[nodiscard]] const std::string& problem() const { return problem_; }   ///< what is wrong; empty without a failure
    [[nodiscard]] std::uint64_t offset() const { return passed_ + at_; }    ///< bytes before the place we are at
    /// What the source itself failed with, if it did.
    [[nodiscard]] const std::string& source_problem() const { return source_problem_; }

private:
    enum class Failure { kNone, kTorn, kBroken };

    bool fill();      ///< more bytes behind those not yet taken; false at the end
    bool to_token();  ///< past white space; false at the end
    bool expect_separator(char close);
    bool fail(Failure failure, std::string problem);  ///< false
    bool open(char bracket);
    std::string_view scan_text();
    std::string_view scan_long_text(std::size_t from);
    void append_escape(std::size_t& at);
    std::string_view scan_bare();
    void skip_text();
    void skip_nested();

    io::ByteSource* source_;
    std::function<void()> moved_;
    std::vector<char> buffer_;
    std::size_t at_ = 0, end_ = 0;
    std::uint64_t passed_ = 0;  ///< bytes that left the buffer
    std::size_t depth_ = 0;
    std::array<bool, kDeepest + 1> begun_{};  ///< by depth: an entry was taken
    Failure failure_ = Failure::kNone;
    std::string problem_, source_problem_, scratch_;
};

}  // namespace millrace::diagnose
