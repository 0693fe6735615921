// Scores as texts that ranks exchange. Numbers keep their bits, which NaN has too.
#include <bit>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "train/ranks.h"

namespace millrace::train {
namespace {

using PlainJson = nlohmann::json;

PlainJson number(double value) { return std::bit_cast<std::uint64_t>(value); }
double number_in(const PlainJson& value) { return std::bit_cast<double>(value.get<std::uint64_t>()); }

PlainJson figures(const std::vector<models::Figure>& all) {
    PlainJson list = PlainJson::array();
    for (const models::Figure& figure : all) list.push_back({figure.name, number(figure.value)});
    return list;
}
std::vector<models::Figure> figures_in(const PlainJson& list) {
    std::vector<models::Figure> all;
    for (const PlainJson& figure : list) all.push_back({figure.at(0).get<std::string>(), number_in(figure.at(1))});
    return all;
}

PlainJson encode(const models::ClassReport& report) {
    PlainJson rows = PlainJson::array();
    for (const auto& [pair, count] : report.confusion) rows.push_back({pair.first, pair.second, count});
    return {report.classes.size(), std::move(rows)};
}
models::ClassReport classes_in(const PlainJson& from) {
    models::Confusion confusion;
    for (const PlainJson& row : from.at(1)) confusion[{row.at(0).get<std::int32_t>(), row.at(1).get<std::int32_t>()}] = row.at(2);
    return models::class_report(std::move(confusion), from.at(0).get<std::int32_t>());
}

PlainJson encode(const Score& score) {
    PlainJson domains = PlainJson::array();
    for (const Score& domain : score.domains) domains.push_back(encode(domain));
    return {number(score.loss), number(score.accuracy), figures(score.more.figures),
            score.more.summary, score.more.notes,       figures(score.more.chosen),
            score.more.refused, std::move(domains),     score.classes ? encode(*score.classes) : PlainJson()};
}
Score decode_score(const PlainJson& from) {
    Score score{number_in(from.at(0)), number_in(from.at(1))};
    score.more.figures = figures_in(from.at(2));
    score.more.summary = from.at(3).get<std::string>();
    score.more.notes = from.at(4).get<std::vector<std::string>>();
    score.more.chosen = figures_in(from.at(5));
    score.more.refused = from.at(6).get<std::string>();
    for (const PlainJson& domain : from.at(7)) score.domains.push_back(decode_score(domain));
    if (!from.at(8).is_null()) score.classes = classes_in(from.at(8));
    return score;
}

}  // namespace

base::Result<std::vector<Score>> Ranks::all_scores(std::vector<Score> own_scores) const {
    if (groups_ == 1) return own_scores;
    PlainJson list = PlainJson::array();
    for (const Score& score : own_scores) list.push_back(encode(score));
    MILLRACE_LET(texts, comm::Group::all_texts(world_, base::json_text(list)));
    std::vector<Score> all;
    for (std::size_t rank = 0; rank < texts.size(); rank += static_cast<std::size_t>(data_->size()))
        for (const PlainJson& score : base::json_or_throw(texts[rank])) all.push_back(decode_score(score));
    return all;
}

}  // namespace millrace::train
