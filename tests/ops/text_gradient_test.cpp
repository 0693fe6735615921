// The gradients of the text operators against central differences of the reference, masks and prefixes included.

#include <gtest/gtest.h>

#include "ops/attention/attention.h"
#include "ops/text/text.h"
#include "ops/vocabulary/vocabulary.h"
#include "ref_program.h"

namespace millrace::ops::cases {
namespace {

constexpr double kTextTolerance = 1e-6;

TEST(AttentionGradient, EqualsCentralDifferences) {
    namespace f = attention_forward;
    namespace b = attention_backward;
    for (const AttentionParams& params :
         {AttentionParams{2, 0, false}, AttentionParams{3, 0, true}, AttentionParams{1, 2, true}, AttentionParams{2, 2, false}}) {
        const int width = 6, positions = 5, sentences = 4, rows = sentences * positions;
        RefProgram p;
        const auto qkv = p.random(1, 1, rows, 3 * width, -1, 1), out = p.tensor(1, 1, rows, width);
        const auto logsumexp = p.tensor(1, 1, rows, params.heads),
                   lengths = p.indices(1, sentences, {positions - params.prefix, 0, 2, 1});
        const auto dout = p.random(1, 1, rows, width, -1, 1), dqkv = p.tensor(1, 1, rows, 3 * width);
        p.add(&attention_forward::kDef, params, {{f::qkv, qkv}, {f::lengths, lengths}, {f::logsumexp, logsumexp}, {f::out, out}});
        p.add(&attention_backward::kDef, params,
              {{b::dout, dout},
               {b::qkv, qkv},
               {b::lengths, lengths},
               {b::logsumexp, logsumexp},
               {b::out, out},
               {b::delta, p.tensor(1, 1, rows, params.heads)},
               {b::dqkv, dqkv}});
        EXPECT_LT(p.gradient_error(qkv, dqkv, functional(p, out, dout)), kTextTolerance)
            << params.heads << " heads, prefix " << params.prefix << (params.causal ? ", causal" : "");
    }
}

TEST(Attention, OfOneSeenPlaceIsItsValueAndLaterPlacesLeaveNoTrace) {
    namespace f = attention_forward;
    RefProgram p;
    const AttentionParams params{1, 0, true};
    const auto qkv = p.random(1, 1, 3, 6, -1, 1), out = p.tensor(1, 1, 3, 2), logsumexp = p.tensor(1, 1, 3, 1);
    p.add(&attention_forward::kDef, params,
          {{f::qkv, qkv}, {f::lengths, p.indices(1, 1, {3})}, {f::logsumexp, logsumexp}, {f::out, out}});
    p.run();
    const std::vector<double> before = p.values(out);
    EXPECT_DOUBLE_EQ(before[0], p.values(qkv)[4]);
    EXPECT_DOUBLE_EQ(before[1], p.values(qkv)[5]);
    for (std::size_t c = 0; c < 6; ++c) p.values(qkv)[2 * 6 + c] += 1;
    p.run();
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(p.values(out)[i], before[i]);
    EXPECT_NE(p.values(out)[4], before[4]);
}

TEST(TokenEmbedGradient, EqualsCentralDifferences) {
    namespace f = token_embed;
    namespace b = token_embed_backward;
    RefProgram p;
    const int sentences = 3, tokens = 4, prefix = 2, positions = prefix + tokens, width = 3, vocabulary = 5;
    const auto table = p.random(1, 1, vocabulary, width, -1, 1), position = p.random(1, 1, positions, width, -1, 1);
    const auto before = p.random(1, 1, sentences, prefix * width, -1, 1), y = p.tensor(1, 1, sentences * positions, width);
    // Twelve ids as rows of four: the second sentence is empty, the third has one outside the vocabulary.
    const auto ids = p.indices(1, sentences * tokens, {0, 3, 3, 1, 9, 9, 9, 9, 3, 7, 2, 9});
    const auto sentence_ids = p.integer_matrix(ids, sentences, tokens);
    const auto lengths = p.indices(1, sentences, {4, 0, 3}), state = p.states(std::vector<MemberState>(1));
    const auto dy = p.random(1, 1, sentences * positions, width, -1, 1), dtable = p.tensor(1, 1, vocabulary, width);
    const auto dposition = p.tensor(1, 1, positions, width), dbefore = p.tensor(1, 1, sentences, prefix * width);
    p.add(&token_embed::kDef, TokenParams{prefix},
          {{f::table, table},
           {f::position, position},
           {f::before, before},
           {f::ids, sentence_ids},
           {f::lengths, lengths},
           {f::state, state},
           {f::y, y}});
    p.add(&token_embed_backward::kDef, TokenParams{prefix},
          {{b::dy, dy},
           {b::ids, sentence_ids},
           {b::lengths, lengths},
           {b::dtable, dtable},
           {b::dposition, dposition},
           {b::dbefore, dbefore}});
    const auto objective = functional(p, y, dy);
    EXPECT_LT(p.gradient_error(table, dtable, objective), kTextTolerance);
    EXPECT_LT(p.gradient_error(position, dposition, objective), kTextTolerance);
    EXPECT_LT(p.gradient_error(before, dbefore, objective), kTextTolerance);
    p.run();
    EXPECT_EQ(p.state(state).nonfinite, 1u);
}

TEST(MaskedMeanGradient, EqualsCentralDifferences) {
    namespace f = masked_mean;
    namespace b = masked_mean_backward;
    for (const int prefix : {0, 1}) {
        RefProgram p;
        const auto x = p.random(1, 1, 12, 3, -1, 1), y = p.tensor(1, 1, 3, 3), dy = p.random(1, 1, 3, 3, -1, 1);
        const auto dx = p.tensor(1, 1, 12, 3), lengths = p.indices(1, 3, {4 - prefix, 0, 2});
        p.add(&masked_mean::kDef, TokenParams{prefix}, {{f::x, x}, {f::lengths, lengths}, {f::y, y}});
        p.add(&masked_mean_backward::kDef, TokenParams{prefix}, {{b::dy, dy}, {b::lengths, lengths}, {b::dx, dx}});
        EXPECT_LT(p.gradient_error(x, dx, functional(p, y, dy)), kTextTolerance) << "prefix " << prefix;
        p.run();
        for (int c = 0; prefix == 0 && c < 3; ++c)
            EXPECT_EQ(p.values(y)[3 + static_cast<std::size_t>(c)], 0) << "an empty sentence";
    }
}

TEST(TokenCrossEntropyGradient, EqualsCentralDifferencesOfTheScaledMean) {
    namespace at = token_cross_entropy;
    for (const bool as_loss : {false, true})
        for (const int first : {0, 2}) {
            const int sentences = 3, tokens = 3, positions = tokens + 2, vocabulary = 4;
            const double scale = 0.4;
            RefProgram p;
            const auto logits = p.random(1, 1, sentences * positions, vocabulary, -2, 2),
                       dlogits = p.tensor(1, 1, sentences * positions, vocabulary);
            const auto ids = p.integer_matrix(p.indices(1, sentences * tokens, {0, 3, 1, 2, 2, 9, 1, 9, 9}), sentences, tokens);
            const auto lengths = p.indices(1, sentences, {3, 2, 0}), state = p.states(std::vector<MemberState>(1));
            const auto tally = p.tensor(1, 1, 1, kTallyColumns);
            p.add(&token_cross_entropy::kDef, TokenLossParams{scale, first, as_loss},
                  {{at::logits, logits},
                   {at::ids, ids},
                   {at::lengths, lengths},
                   {at::state, state},
                   {at::dlogits, dlogits},
                   {at::tally, tally}});
            const auto objective = [&] { return as_loss ? scale * p.state(state).loss / sentences : p.state(state).penalty; };
            EXPECT_LT(p.gradient_error(logits, dlogits, objective), kTextTolerance) << "first " << first;
            p.run();
            EXPECT_EQ(p.values(tally)[tally::tokens], 5);
            EXPECT_EQ(p.state(state).nonfinite, 0u) << "ids behind a length do not matter";
            EXPECT_EQ(p.state(state).rows, as_loss ? 3u : 0u);
        }
}

TEST(VocabularyLossGradient, EqualsCentralDifferencesOfTheScaledMean) {
    namespace at = vocabulary_loss;
    for (const bool as_loss : {false, true}) {
        const int sentences = 3, tokens = 3, first = 1, rows = sentences * (tokens + 2), vocabulary = 4, width = 5;
        const double scale = 0.4;
        RefProgram p;
        const auto x = p.random(1, 1, rows, width, -1, 1), weight = p.random(1, 1, vocabulary, width, -1, 1),
                   bias = p.random(1, 1, 1, vocabulary, -1, 1);
        const auto dx = p.tensor(1, 1, rows, width), dweight = p.tensor(1, 1, vocabulary, width),
                   dbias = p.tensor(1, 1, 1, vocabulary);
        // The second sentence has an id outside the vocabulary, the third none at all.
        const auto ids = p.integer_matrix(p.indices(1, sentences * tokens, {0, 3, 1, 2, 4, 9, 1, 9, 9}), sentences, tokens);
        const auto state = p.states(std::vector<MemberState>(1)), tally = p.tensor(1, 1, 1, kTallyColumns);
        p.add(&vocabulary_loss::kDef, TokenLossParams{scale, first, as_loss},
              {{at::x, x},
               {at::weight, weight},
               {at::bias, bias},
               {at::ids, ids},
               {at::lengths, p.indices(1, sentences, {3, 2, 0})},
               {at::state, state},
               {at::losses, p.tensor(1, 1, rows, 1)},
               {at::dx, dx},
               {at::dweight, dweight},
               {at::dbias, dbias},
               {at::tally, tally}});
        const auto objective = [&] { return as_loss ? scale * p.state(state).loss / sentences : p.state(state).penalty; };
        EXPECT_LT(p.gradient_error(x, dx, objective), kTextTolerance);
        EXPECT_LT(p.gradient_error(weight, dweight, objective), kTextTolerance);
        EXPECT_LT(p.gradient_error(bias, dbias, objective), kTextTolerance);
        p.run();
        EXPECT_EQ(p.values(tally)[tally::tokens], 5);
        EXPECT_EQ(p.state(state).nonfinite, 1u);
        for (std::size_t c = 0; c < static_cast<std::size_t>(width); ++c) EXPECT_EQ(p.values(dx)[c], 0) << "predicts nothing";
    }
}

TEST(TokenChoose, GrowsSentencesUntilTheyEndOrAreFull) {
    namespace at = token_choose;
    RefProgram p;
    // Two positions for each of three sentences; token 1 ends one.
    const auto logits = p.tensor(1, 1, 6, 3, {0, 5, 0, 0, 0, 4, 7, 0, 0, 2, 3, 3, 0, 0, 9, 1, 0, 0});
    const auto ids = p.indices(1, 6, {-1, -1, 2, -1, 1, -1}), lengths = p.indices(1, 3, {0, 1, 1});
    p.add(&token_choose::kDef, TokenChooseParams{0, 1},
          {{at::logits, logits}, {at::ids, p.integer_matrix(ids, 3, 2)}, {at::lengths, lengths}});
    p.run();
    EXPECT_EQ(p.integers(ids), (std::vector<std::int32_t>{1, -1, 2, 1, 1, -1}));
    EXPECT_EQ(p.integers(lengths), (std::vector<std::int32_t>{1, 2, 1}));
    p.run();  // the first has ended, the second is full
    EXPECT_EQ(p.integers(ids), (std::vector<std::int32_t>{1, -1, 2, 1, 1, -1}));
}

}  // namespace
}  // namespace millrace::ops::cases
