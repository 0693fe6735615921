#pragma once
// A rewrite turns records of a program into one record of a fused operator (ops/fused.h), or changes them one by one, before
// memory is planned. Any folder registers some, a family's or a user's too, as static objects beside a definition.
// docs/own-operator.md adds one.

#include <optional>
#include <string>
#include <vector>

#include "ops/uses.h"

namespace millrace::ops {

/// What a rewrite is asked about: the records from one on, up to the border of their section and their region. Operands have
/// stand-in addresses (ops/uses.h).
class Window : public std::span<const Bound> {
public:
    /// `numbers`: those of the records in `uses`.
    Window(std::span<const Bound> records, const Uses& uses, std::span<const std::size_t> numbers)
        : std::span<const Bound>(records), uses_(&uses), numbers_(numbers) {}

    [[nodiscard]] Window from(std::size_t first) const { return {subspan(first), *uses_, numbers_.subspan(first)}; }
    [[nodiscard]] const Uses& uses() const { return *uses_; }
    [[nodiscard]] std::size_t number(std::size_t record) const { return numbers_[record]; }
    /// The first record behind `after` that reads of `o`; absent: none of the window.
    [[nodiscard]] std::optional<std::size_t> next_reader(const tensor::Operand& o, std::size_t after) const;

private:
    const Uses* uses_;
    std::span<const std::size_t> numbers_;
};

/// A slot of one of the records that a rewrite takes.
struct Output {
    std::size_t record = 0;
    int slot = 0;
};

/// Which records of a window a rewrite takes. Others may stand between them that neither need what they write nor write what they
/// use.
struct Match {
    std::vector<std::size_t> records = {};  ///< ascending, the first is 0; empty: it does not fit
    /// Outputs that the fused kernel does not write, since only the records themselves read them: they get no memory.
    std::vector<Output> inner = {};
    /// Outputs in memory that outlives the program which the kernel may leave as they are: no record reads them behind it.
    std::vector<Output> unwritten = {};
    /// What each of the records becomes, absent: it disappears. Such a rewrite has no fused operator, may leave record 0 as it
    /// is, and answers for the order of what it changes.
    std::vector<std::optional<Record>> instead = {};

    /// The first `count` records.
    static Match first(std::size_t count, std::vector<Output> inner = {});
    [[nodiscard]] std::size_t count() const { return records.size(); }
};

/// How a backend finds what it can do at once; null: it does not.
struct RewriteTraits {
    const char* name = nullptr;
    const OpDef* fused = nullptr;   ///< what the records become, with FusedParams; null: Match::instead
    const OpDef* begins = nullptr;  ///< the first record's operator; null: any
    int priority = 0;               ///< of several that fit at a record the highest is taken, then the first by name
    /// Tried at all records before the others are tried at any: those find what it made.
    bool before_others = false;
    Match (*cpu)(const cpu::Context&, const Window&) = nullptr;
    Match (*cuda)(const cuda::Context&, const Window&) = nullptr;
    Match (*ref)(const Window&) = nullptr;
};

/// Lives as long as the process.
struct Rewrite : RewriteTraits {
    explicit Rewrite(const RewriteTraits& traits);
    Rewrite(const Rewrite&) = delete;
    Rewrite& operator=(const Rewrite&) = delete;
    const Rewrite* next;  ///< of rewrites()
};
/// All that are linked into this program, in the order in which they are tried.
std::vector<const Rewrite*> rewrites();
/// Each once; several that begin differently may share a name.
std::vector<std::string> rewrite_names();
/// Whether a list of names, or of "all", names it.
bool is_off(const Rewrite& rewrite, const std::vector<std::string>& off);

/// Whether the records can become one: no other record reads what the kernel keeps to itself, and those between them may
/// as well stand before or behind it. `behind`: it stands where its last record does instead of its first.
struct Placement {
    bool possible = false, behind = false;
};
Placement place(const Match& match, const Window& window);

}  // namespace millrace::ops
