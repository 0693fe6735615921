#include "ops/text/text.h"

#include "ops/gather/gather.h"
#include "ops/kernels.h"
#include "ops/text/sequence_rule.h"

namespace millrace::ops {
namespace {

/// Both directions of the embedding.
Checker& check_embed(Checker& c, int y, int ids, int lengths, int table, int position, int before) {
    const auto [k, g, rows, cols] = c.shape(y);
    const int prefix = c.params<TokenParams>().prefix, sequences = c.shape(lengths).rows, positions = prefix + c.shape(ids).cols;
    c.require({y}, Type::real, {k, 1, sequences * positions, cols}).allow({before}, Type::real, {k, 1, sequences, prefix * cols});
    c.allow({table}, Type::stat, {k, 1, c.shape(table).rows, cols}).allow({position}, Type::stat, {k, 1, positions, cols});
    return check_tokens(c, y, ids, lengths, prefix);
}

/// Both directions of the mean.
void check_mean(Checker& c, int values, int mean, int lengths) {
    const auto [k, g, rows, cols] = c.shape(values);
    c.require({values}, Type::real, {k, 1, rows, cols}).require({mean}, Type::real, {k, 1, c.shape(lengths).rows, cols});
    const int prefix = c.params<TokenParams>().prefix;
    check_positions(c, values, lengths, prefix).that(prefix >= 0, "the prefix is below 0");
}

}  // namespace

MILLRACE_OPERATOR(token_embed, Phase::forward, {"table"}, {"position"}, {"before"}, {"ids"}, {"lengths"}, {"state", update},
                  {"y", write});
MILLRACE_OPERATOR(token_embed_backward, Phase::backward, {"dy"}, {"ids"}, {"lengths"}, {"dtable", add}, {"dposition", add},
                  {"dbefore", add});
MILLRACE_OPERATOR(masked_mean, Phase::forward, {"x"}, {"lengths"}, {"y", write});
MILLRACE_OPERATOR(masked_mean_backward, Phase::backward, {"dy"}, {"lengths"}, {"dx", add});
MILLRACE_OPERATOR(token_cross_entropy, Phase::loss, {"logits"}, {"ids"}, {"lengths"}, {"state", update}, {"dlogits", write},
                  {"tally", add}, {"total"});
MILLRACE_OPERATOR(token_choose, Phase::forward, {"logits"}, {"ids", update}, {"lengths", update});

void token_embed::check(Checker& c) {
    check_embed(c, y, ids, lengths, table, position, before).needs({before}, c.params<TokenParams>().prefix > 0);
    c.needs({table, position}).state(state, c.shape(y).k);
}
void token_embed_backward::check(Checker& c) { check_embed(c, dy, ids, lengths, dtable, dposition, dbefore); }

void masked_mean::check(Checker& c) { check_mean(c, x, y, lengths); }
void masked_mean_backward::check(Checker& c) { check_mean(c, dx, dy, lengths); }

void token_cross_entropy::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(logits);
    c.require({logits}, real, {k, 1, rows, cols}).allow({dlogits}, real, {k, 1, rows, cols}).state(state, k);
    c.allow({tally}, stat, {k, 1, 1, kTallyColumns}).allow({total}, stat, {k, 1, 1, 2});
    check_tokens(c, logits, ids, lengths, c.params<TokenLossParams>().first);
}

void token_choose::check(Checker& c) {
    const auto [k, g, rows, cols] = c.shape(logits);
    c.require({logits}, real, {k, 1, rows, cols}).that(cols > 0, "there is no token to choose");
    check_tokens(c, logits, ids, lengths, c.params<TokenChooseParams>().first);
}

MILLRACE_REWRITE(window_embed, gather_windows, 0);

}  // namespace millrace::ops
