// Sentences: embedding, mean over positions, loss of tokens, greedy choice.

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "op_case.h"
#include "ops/text/text.h"

namespace millrace::ops::cases {
namespace {

constexpr double kTextNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kTextInfinity = std::numeric_limits<double>::infinity();

struct Text {
    int k, sentences, tokens, prefix, vocabulary, cols;
    [[nodiscard]] int positions() const { return prefix + tokens; }
    [[nodiscard]] int rows() const { return sentences * positions(); }
    [[nodiscard]] std::string text() const {
        return fmt::format("K{}_B{}_T{}_P{}_V{}_C{}", k, sentences, tokens, prefix, vocabulary, cols);
    }
};
const Text kTexts[] = {{1, 1, 1, 0, 1, 1},    {2, 3, 7, 0, 11, 13},   {2, 3, 5, 2, 11, 6},
                       {1, 5, 13, 4, 31, 64}, {1, 4, 128, 4, 97, 32}, {1, 3, 0, 2, 5, 4},
                       {1, 0, 3, 1, 5, 4},    {3, 2, 1, 1, 3, 259},   {1, 9, 37, 0, 7, 48}};

/// Also 0, everything, one, and lengths that have to be cut.
Values lengths_of(const Text& t) { return given({t.tokens * 1.0, 0, t.tokens / 2 * 1.0, 1, t.tokens + 5.0, -3, t.tokens - 1.0}); }

/// Some ids outside the vocabulary, behind a length (where they do not matter) or not.
Values ids_of(const Text& t, bool outside) {
    if (!outside) return integers(0, t.vocabulary - 1);
    return given({0, 1, t.vocabulary * 1.0, 2, -1, 2147483647, 0, -2147483648.0, 1});
}

OpCase start(const OpDef* op, const char* title, const std::string& note, const Text& t) {
    OpCase c;
    c.name = fmt::format("{}/{}/{}", title, note, t.text());
    c.op = op;
    c.params = TokenParams{t.prefix};
    c.members = t.k;
    return c;
}

OpCase embed(const Text& t, const std::string& note, bool outside = false, Layout layout = kDense) {
    namespace at = token_embed;
    OpCase c = start(&token_embed::kDef, "token_embed", note, t);
    c.states = sample_states(t.k);
    c.slot(at::table, Element::stat, t.k, 1, t.vocabulary, t.cols, uniform(-1, 1), layout);
    c.slot(at::position, Element::stat, t.k, 1, t.positions(), t.cols, uniform(-1, 1), layout);
    if (t.prefix > 0) c.slot(at::before, Element::real, t.k, 1, t.sentences, t.prefix * t.cols, uniform(-1, 1), layout);
    c.slot(at::ids, Element::i32, t.k, 1, t.sentences, t.tokens, ids_of(t, outside), layout);
    c.slot(at::lengths, Element::i32, t.k, 1, t.sentences, 1, lengths_of(t));
    c.state(at::state);
    return c.slot(at::y, Element::real, t.k, 1, t.rows(), t.cols, poison(), layout);
}

OpCase embed_back(const Text& t, const std::string& note, bool adding, bool outside = false, Layout layout = kDense) {
    namespace at = token_embed_backward;
    OpCase c = start(&token_embed_backward::kDef, "token_embed_backward", note, t);
    const Values before = adding ? uniform(-1, 1) : poison();
    c.slot(at::dy, Element::real, t.k, 1, t.rows(), t.cols, uniform(-1, 1), layout);
    c.slot(at::ids, Element::i32, t.k, 1, t.sentences, t.tokens, ids_of(t, outside), layout);
    c.slot(at::lengths, Element::i32, t.k, 1, t.sentences, 1, lengths_of(t));
    c.slot(at::dtable, Element::stat, t.k, 1, t.vocabulary, t.cols, before, layout);
    c.slot(at::dposition, Element::stat, t.k, 1, t.positions(), t.cols, before, layout);
    if (t.prefix > 0) c.slot(at::dbefore, Element::real, t.k, 1, t.sentences, t.prefix * t.cols, before, layout);
    if (adding) c.accumulates(at::dtable).accumulates(at::dposition).accumulates(at::dbefore);
    return c;
}

/// One id for all tokens, all ids in turn, and few ids for most tokens as in a text: runs of equal ids of every length, over
/// several chunks of tokens.
void add_frequencies(std::vector<OpCase>& cases) {
    const auto add = [&cases](const Text& t, const char* note, bool adding, Values ids) {
        OpCase c = embed_back(t, note, adding);
        c.slots[token_embed_backward::ids].values = std::move(ids);
        cases.push_back(c);
    };
    std::vector<double> turns, text;
    for (int i = 0; i < 4999; ++i) {
        turns.push_back(i * 7919 % 4999);
        text.push_back(std::floor(700 * std::pow(std::fmod(i * 0.6180339887, 1), 6)));
    }
    add({2, 9, 37, 1, 5, 16}, "equal", false, constant(3));
    add({1, 140, 40, 0, 3, 8}, "equal", true, constant(1));
    add({1, 140, 40, 1, 4999, 5}, "different", false, given(turns));
    add({2, 140, 40, 0, 700, 8}, "text", false, given(text));
    add({1, 700, 50, 2, 700, 8}, "text", true, given(text));
    add({1, 30, 40, 0, 140001, 4}, "many_words", false, integers(0, 140000));
}

OpCase mean(const Text& t, const std::string& note, Layout layout = kDense) {
    namespace at = masked_mean;
    OpCase c = start(&masked_mean::kDef, "masked_mean", note, t);
    c.slot(at::x, Element::real, t.k, 1, t.rows(), t.cols, uniform(-1, 1), layout);
    c.slot(at::lengths, Element::i32, t.k, 1, t.sentences, 1, lengths_of(t));
    return c.slot(at::y, Element::real, t.k, 1, t.sentences, t.cols, poison(), layout);
}

OpCase mean_back(const Text& t, const std::string& note, bool adding, Layout layout = kDense) {
    namespace at = masked_mean_backward;
    OpCase c = start(&masked_mean_backward::kDef, "masked_mean_backward", note, t);
    c.slot(at::dy, Element::real, t.k, 1, t.sentences, t.cols, uniform(-1, 1), layout);
    c.slot(at::lengths, Element::i32, t.k, 1, t.sentences, 1, lengths_of(t));
    c.slot(at::dx, Element::real, t.k, 1, t.rows(), t.cols, adding ? uniform(-1, 1) : poison(), layout);
    return adding ? c.accumulates(at::dx) : c;
}

/// The width of the logits is the vocabulary; what stands at positions without a token is not to be read.
OpCase entropy(const Text& t, const std::string& note, const TokenLossParams& params, Values logits, bool outside = false,
               Layout layout = kDense) {
    namespace at = token_cross_entropy;
    OpCase c = start(&token_cross_entropy::kDef, "token_cross_entropy", note, t);
    c.params = params;
    c.states = sample_states(t.k);
    c.slot(at::logits, Element::real, t.k, 1, t.rows(), t.vocabulary, std::move(logits), layout);
    c.slot(at::ids, Element::i32, t.k, 1, t.sentences, t.tokens, ids_of(t, outside), layout);
    c.slot(at::lengths, Element::i32, t.k, 1, t.sentences, 1, lengths_of(t));
    c.state(at::state);
    c.slot(at::dlogits, Element::real, t.k, 1, t.rows(), t.vocabulary, poison(), layout);
    return c.slot(at::tally, Element::stat, t.k, 1, 1, kTallyColumns, poison());
}

OpCase without(OpCase c, std::initializer_list<int> slots, const std::string& note) {
    c.name += note;
    for (const int slot : slots) c.slots[static_cast<std::size_t>(slot)] = Slot{};
    return c;
}

OpCase choose(const Text& t, const std::string& note, Values logits, int end, Layout layout = kDense) {
    namespace at = token_choose;
    OpCase c = start(&token_choose::kDef, "token_choose", note, t);
    c.params = TokenChooseParams{t.prefix, end};
    const Text more{t.k, t.sentences, t.tokens, t.prefix + 1, t.vocabulary, t.cols};
    c.slot(at::logits, Element::real, t.k, 1, more.rows(), t.vocabulary, std::move(logits), layout);
    c.slot(at::ids, Element::i32, t.k, 1, t.sentences, t.tokens, integers(0, t.vocabulary - 1), layout);
    return c.slot(at::lengths, Element::i32, t.k, 1, t.sentences, 1, lengths_of(t));
}

void add_losses(std::vector<OpCase>& cases) {
    for (const Text& t : kTexts) {
        const int first = t.prefix > 0 ? t.prefix - 1 : 0;
        cases.push_back(entropy(t, "plain", {1, first, false}, uniform(-3, 3)));
    }
    const Text small{2, 4, 6, 2, 10, 1}, wide{1, 3, 5, 1, 4099, 1};
    cases.push_back(entropy(wide, "wide", {1, 0, false}, uniform(-3, 3)));
    cases.push_back(entropy(small, "as_loss", {0.25, 1, true}, uniform(-3, 3)));
    cases.push_back(entropy(small, "scaled", {0.25, 2, false}, uniform(-3, 3)));
    cases.push_back(entropy(small, "windows", {1, 1, true}, uniform(-3, 3), false, kWindow));
    cases.push_back(entropy(small, "outside", {1, 1, true}, uniform(-3, 3), true));
    cases.push_back(entropy(small, "large", {1, 1, false}, given({9984, -9984, 9920, 0, 3, 2, 1, 16, -29952, 9984})));
    cases.push_back(entropy(small, "ties", {1, 1, false}, given({1, 3, 3, 2, 3})));
    cases.push_back(entropy({1, 3, 2, 0, 4, 1}, "sharp", {1, 0, true}, given({0, 0, 40, 0})));
    for (const bool as_loss : {false, true}) {  // over the tokens and sentences of a whole step
        cases.push_back(entropy(small, as_loss ? "loss_of_a_step" : "of_a_step", {0.25, 1, as_loss}, uniform(-3, 3)));
        cases.back().slot(token_cross_entropy::total, Element::stat, small.k, 1, 1, 2, given({61, 9, 47, 9}));
    }
    OpCase c = entropy(small, "adding", {0.5, 1, false}, uniform(-3, 3));
    c.slots[token_cross_entropy::tally].values = uniform(1, 50);
    cases.push_back(c.accumulates(token_cross_entropy::tally));
    cases.push_back(without(entropy(small, "evaluation", {1, 1, true}, uniform(-3, 3)), {token_cross_entropy::dlogits}, ""));
    cases.push_back(without(entropy(small, "bare", {1, 1, true}, uniform(-3, 3)),
                            {token_cross_entropy::dlogits, token_cross_entropy::tally}, ""));
    for (const double value : {kTextNan, kTextInfinity}) {
        c = entropy(small, value == kTextInfinity ? "infinite" : "nan", {1, 1, true}, uniform(-3, 3).with(13, value));
        c.makes_nan = true;
        c.slots[token_cross_entropy::dlogits].compare = c.slots[token_cross_entropy::tally].compare = false;
        cases.push_back(c);
    }
    // Position 7 of the first sentence has no token, so its logits must not be read.
    cases.push_back(entropy(small, "nan_elsewhere", {1, 1, true}, uniform(-3, 3).with(75, kTextNan)));
}

}  // namespace

void add_text_cases(std::vector<OpCase>& cases) {
    for (const Text& t : kTexts) {
        cases.push_back(embed(t, "plain"));
        cases.push_back(embed_back(t, "plain", false));
        cases.push_back(embed_back(t, "adding", true));
        cases.push_back(mean(t, "plain"));
        cases.push_back(mean_back(t, "plain", false));
        cases.push_back(mean_back(t, "adding", true));
        cases.push_back(choose(t, "plain", uniform(-3, 3), 1));
    }
    const Text small{2, 5, 7, 3, 11, 13};
    cases.push_back(embed(small, "outside", true));
    cases.push_back(embed(small, "windows", false, kWindow));
    cases.push_back(embed_back(small, "outside", false, true));
    cases.push_back(embed_back(small, "windows", false, false, kWindow));
    add_frequencies(cases);
    cases.push_back(without(embed_back(small, "some", false), {token_embed_backward::dtable}, "/positions"));
    cases.push_back(
        without(embed_back(small, "some", false), {token_embed_backward::dposition, token_embed_backward::dbefore}, "/table"));
    cases.push_back(mean(small, "windows", kWindow));
    cases.push_back(mean_back(small, "windows", true, kWindow));
    cases.push_back(choose(small, "windows", uniform(-3, 3), -1, kWindow));
    cases.push_back(choose(small, "ties", given({1, 3, 3, 2, 3}), 4));
    cases.push_back(choose(small, "nan", given({1, kTextNan, 3, kTextNan, 2}), 4));
    cases.push_back(choose(small, "nothing_but_nan", constant(kTextNan), 4));
    cases.push_back(choose({1, 3, 5, 0, 4099, 1}, "wide", uniform(-3, 3), -1));
    add_losses(cases);
}

}  // namespace millrace::ops::cases
