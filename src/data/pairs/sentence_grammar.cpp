#include "data/pairs/pairs.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "base/philox.h"
#include "base/result.h"

namespace millrace::data {
namespace {

/// A part of a statement and what it turns into: itself unless given.
struct SentencePart {
    constexpr SentencePart(const char* word) : cause(word), effect(word) {}  // NOLINT: implicit on purpose, for the tables
    constexpr SentencePart(const char* statement, const char* consequence) : cause(statement), effect(consequence) {}
    std::string_view cause, effect;
};

constexpr SentencePart kPeople[] = {
    {"baker", "customers"},    {"teacher", "pupils"},       {"doctor", "patients"},   {"farmer", "neighbours"},
    {"pilot", "passengers"},   {"captain", "sailors"},      {"singer", "listeners"},  {"gardener", "children"},
    {"painter", "visitors"},   {"cook", "guests"},          {"judge", "lawyers"},     {"mayor", "citizens"},
    {"shepherd", "villagers"}, {"tailor", "apprentices"},   {"librarian", "readers"}, {"fisherman", "cousins"},
    {"coach", "players"},      {"king", "servants"},        {"monk", "pilgrims"},     {"professor", "students"},
    {"blacksmith", "riders"},  {"innkeeper", "travellers"}, {"actor", "fans"},        {"miner", "friends"},
};
constexpr SentencePart kTimes[] = {
    {"at sunrise", "by breakfast"},   {"this morning", "by noon"},     {"at lunch", "in the afternoon"},
    {"this afternoon", "by evening"}, {"at sunset", "before dark"},    {"this evening", "at bedtime"},
    {"at midnight", "before dawn"},   {"last night", "today"},         {"on Monday", "on Tuesday"},
    {"on Wednesday", "on Thursday"},  {"on Friday", "at the weekend"}, {"on Sunday", "the next week"},
    {"in spring", "in summer"},       {"in autumn", "in winter"},      {"in May", "in June"},
    {"years ago", "soon afterwards"},
};
constexpr SentencePart kPlaces[] = {"kitchen",   "garden",  "cellar",   "library", "market",   "stable", "church",
                                    "museum",    "theatre", "workshop", "school",  "hospital", "tower",  "attic",
                                    "courtyard", "barn",    "castle",   "mill",    "hall",     "orchard"};
constexpr SentencePart kAccidents[] = {
    {"broke a window", "swept up the glass"},     {"spilled the milk", "wiped the floor"},
    {"lost the keys", "searched every corner"},   {"left the door open", "chased out the birds"},
    {"burned the bread", "aired out the smoke"},  {"dropped the lantern", "lit some candles"},
    {"locked the gate", "climbed over the wall"}, {"forgot the umbrella", "dried the wet coats"},
    {"tore the curtain", "sewed the cloth"},      {"knocked over the ladder", "rescued the cat"},
    {"hid the letter", "asked many questions"},   {"cut the rope", "carried the load"},
    {"planted a tree", "brought some water"},     {"found a treasure", "shared the gold"},
    {"told a joke", "laughed for an hour"},       {"baked a cake", "ate every crumb"},
};
constexpr SentencePart kWeather[] = {
    {"dark clouds", "rain filled the ditches"}, {"bright lightning", "thunder shook the windows"},
    {"thick fog", "nobody found the path"},     {"heavy snow", "the roads were closed"},
    {"a strong wind", "old trees fell"},        {"a rainbow", "the sun came back"},
    {"hot dry air", "the grass turned yellow"}, {"hard frost", "the ponds froze"},
    {"grey hail", "the roofs had holes"},       {"warm sunshine", "the ice melted"},
    {"a red sky", "clear days followed"},       {"a cloud of dust", "every leaf was brown"},
};
constexpr SentencePart kRegions[] = {"valley", "village", "coast", "forest", "desert", "mountain", "meadow",   "river",
                                     "lake",   "island",  "city",  "bridge", "plain",  "swamp",    "vineyard", "quarry"};
constexpr SentencePart kNumbers[] = {
    {"two", "four"},       {"three", "six"},     {"four", "eight"},    {"five", "ten"},   {"six", "twelve"},
    {"seven", "fourteen"}, {"eight", "sixteen"}, {"nine", "eighteen"}, {"ten", "twenty"},
};
constexpr SentencePart kGoods[] = {
    {"apples", "bakes a pie"},       {"candles", "reads after dark"},   {"boots", "walks with dry feet"},
    {"hens", "collects eggs"},       {"blankets", "sleeps warmly"},     {"ropes", "ties up the boat"},
    {"nails", "mends the fence"},    {"carrots", "cooks a soup"},       {"roses", "decorates the table"},
    {"books", "learns old stories"}, {"hats", "keeps cool in the sun"}, {"cups", "serves hot tea"},
    {"bricks", "builds an oven"},    {"kites", "plays in the wind"},    {"lemons", "stirs a sour drink"},
    {"drums", "makes loud music"},   {"stamps", "sends many letters"},  {"brushes", "paints the door"},
    {"fish", "lights the grill"},    {"pillows", "rests on the sofa"},
};
constexpr SentencePart kBuyers[] = {"widow",  "soldier", "stranger", "queen",    "merchant",  "poet",
                                    "hunter", "builder", "sheriff",  "princess", "carpenter", "beekeeper"};
constexpr SentencePart kOccasions[] = {
    {"a birthday", "a slice of cake"}, {"a wedding", "a dance"},        {"Christmas", "a carol"},
    {"a holiday", "a postcard"},       {"good marks", "a proud smile"}, {"a brave deed", "a handshake"},
    {"a new job", "a fine dinner"},    {"a farewell", "a long hug"},    {"a recovery", "a short poem"},
    {"a first tooth", "a loud kiss"},
};
constexpr SentencePart kGifts[] = {
    {"a puppy", "walks the dog every day"}, {"a telescope", "counts the stars"},     {"a bicycle", "rides through the park"},
    {"a guitar", "sings by the fire"},      {"a camera", "takes pictures of birds"}, {"a chess set", "thinks about every move"},
    {"a watch", "is never late"},           {"a scarf", "does not feel the cold"},   {"a map", "plans a long trip"},
    {"a parrot", "hears strange words"},    {"a lamp", "writes until midnight"},     {"a ticket", "travels by train"},
    {"a football", "scores a goal"},        {"a basket", "picks mushrooms"},         {"a swing", "flies above the grass"},
    {"a tent", "camps under the trees"},
};
constexpr SentencePart kReceivers[] = {"girl",   "boy",    "grandmother", "clerk",    "twin",    "prince",
                                       "waiter", "dancer", "driver",      "sculptor", "postman", "orphan"};
constexpr SentencePart kGivers[] = {
    {"an uncle", "the uncle"},
    {"an aunt", "the aunt"},
    {"a brother", "the brother"},
    {"a sister", "the sister"},
    {"a grandfather", "the grandfather"},
    {"a friend", "the friend"},
    {"a nephew", "the nephew"},
    {"a niece", "the niece"},
    {"a godmother", "the godmother"},
    {"a father", "the father"},
    {"a mother", "the mother"},
    {"a schoolmate", "the schoolmate"},
};
constexpr SentencePart kMoods[] = {
    {"hungry", "ran for their lives"}, {"sleepy", "played without fear"}, {"angry", "hid in a corner"},
    {"wounded", "came to look"},       {"curious", "kept very still"},    {"young", "were hardly afraid"},
    {"wild", "made a terrible noise"}, {"tame", "shared their food"},     {"quiet", "noticed nothing"},
    {"clever", "were tricked again"},
};
constexpr SentencePart kAnimals[] = {
    {"fox", "hens"},     {"cat", "mice"},         {"wolf", "sheep"},  {"hawk", "sparrows"},
    {"bear", "bees"},    {"owl", "moths"},        {"dog", "kittens"}, {"snake", "frogs"},
    {"spider", "flies"}, {"weasel", "rabbits"},   {"goat", "geese"},  {"bull", "calves"},
    {"crow", "worms"},   {"hedgehog", "beetles"}, {"otter", "ducks"}, {"swallow", "gnats"},
};
constexpr SentencePart kVehicles[] = {
    {"train", "platform"}, {"ferry", "pier"}, {"bus", "shelter"},  {"plane", "lounge"},
    {"tram", "pavement"},  {"taxi", "kerb"},  {"sledge", "lodge"}, {"balloon", "field"},
};
constexpr SentencePart kCities[] = {"Oslo",  "Lisbon", "Vienna", "Prague", "Dublin", "Athens", "Rome",
                                    "Paris", "Madrid", "Berlin", "Warsaw", "Zurich", "London", "Helsinki",
                                    "Cairo", "Lima",   "Tokyo",  "Delhi",  "Boston", "Sydney"};
constexpr SentencePart kTroubles[] = {
    {"a strike", "raised the wages"},    {"thick smoke", "put out the fire"},     {"a lost child", "found the parents"},
    {"a robbery", "caught the thief"},   {"a sick driver", "hired a student"},    {"an empty tank", "bought more fuel"},
    {"a parade", "cleared the street"},  {"a false alarm", "tested the bells"},   {"a power cut", "repaired the cable"},
    {"a flood", "pumped out the water"}, {"a big match", "cheered for the team"}, {"an election", "counted the votes"},
};
constexpr SentencePart kSkills[] = {
    {"the violin", "plays a waltz"},     {"chess", "wins the tournament"},     {"juggling", "throws nine balls"},
    {"French", "translates a novel"},    {"arithmetic", "adds without paper"}, {"magic tricks", "makes a coin vanish"},
    {"dancing", "leads the ballet"},     {"archery", "hits the target"},       {"knitting", "finishes a jumper"},
    {"carving", "shows a wooden horse"}, {"opera", "reaches the high notes"},  {"fencing", "beats the champion"},
    {"speeches", "moves the crowd"},     {"yoga", "stands on one hand"},       {"boxing", "knocks down a giant"},
    {"drawing", "sketches every face"},
};
constexpr SentencePart kHabits[] = {
    {"every day", "within a month"},
    {"twice a week", "within a year"},
    {"all night", "after a week"},
    {"now and then", "some years later"},
    {"with great care", "step by step"},
    {"without a master", "after many mistakes"},
    {"with a partner", "sooner than expected"},
    {"in secret", "to everybody's surprise"},
    {"for an hour", "at last"},
    {"on rainy days", "when the sun returns"},
    {"with a blindfold", "against all odds"},
    {"before work", "little by little"},
};
constexpr SentencePart kMachines[] = {
    {"pump", "plumber"},   {"clock", "watchmaker"}, {"lift", "mechanic"},       {"printer", "technician"}, {"radio", "engineer"},
    {"organ", "organist"}, {"loom", "weaver"},      {"telephone", "operator"},  {"motor", "inventor"},     {"fountain", "mason"},
    {"piano", "tuner"},    {"siren", "guard"},      {"computer", "programmer"}, {"heater", "caretaker"},   {"robot", "designer"},
};
constexpr SentencePart kFaults[] = {
    {"stopped", "cleaned the gears"},  {"leaked", "changed the seal"},       {"rattled", "tightened the screws"},
    {"smoked", "opened a hatch"},      {"sparked", "pulled the plug"},       {"whistled", "closed a valve"},
    {"overheated", "added some oil"},  {"shook", "bolted it down"},          {"rusted", "polished the metal"},
    {"exploded", "ordered a new one"}, {"hummed", "listened with patience"}, {"got stuck", "used a hammer"},
};

constexpr int kSlots = 4;

/// Texts of a template: $n is slot n's part (its cause in the statement, its effect in the consequence), @n in the consequence is
/// the cause again.
struct Template {
    std::string_view statement, consequence;
    std::array<std::span<const SentencePart>, kSlots> slots;

    [[nodiscard]] constexpr std::uint32_t combinations() const {
        std::uint32_t product = 1;
        for (const auto& parts : slots) product *= static_cast<std::uint32_t>(parts.size());
        return product;
    }
};

constexpr Template kTemplates[] = {
    {"the $1 $2 in the $3 $4.", "$4 the $1 $2 in the $3.", {kPeople, kAccidents, kPlaces, kTimes}},
    {"$4 the $1 saw $2 over the $3.", "$2 near the $3 $4, and the $1 noticed it.", {kPeople, kWeather, kRegions, kTimes}},
    {"the $1 sold $2 $3 to the $4.", "now the $4 $3 and pays $2 coins to the @1.", {kPeople, kNumbers, kGoods, kBuyers}},
    {"for $1 the $2 got $3 from $4.", "the $2 $3 and thanks $4 with $1.", {kOccasions, kReceivers, kGifts, kGivers}},
    {"the $1 $2 came into the $3 $4.", "$4 the $2 in the $3 $1.", {kMoods, kAnimals, kPlaces, kTimes}},
    {"the $1 from $2 was late $4 because of $3.",
     "$4 the people of $2 $3, and the $1 was crowded.",
     {kVehicles, kCities, kTroubles, kTimes}},
    {"the $1 practises $2 $3 in the $4.", "$3 the @1 $2, and the $1 come to the $4.", {kPeople, kSkills, kHabits, kPlaces}},
    {"the $1 in the $2 $3 $4.", "$4 the $1 came to the $2 and $3.", {kMachines, kPlaces, kFaults, kTimes}},
};
constexpr auto kTemplateCount = static_cast<std::uint32_t>(std::size(kTemplates));

constexpr std::uint32_t smallest_template() {
    std::uint32_t least = kTemplates[0].combinations();
    for (const Template& each : kTemplates) least = std::min(least, each.combinations());
    return least;
}

using Chosen = std::array<const SentencePart*, kSlots>;

std::string expand(std::string_view pattern, const Chosen& chosen, bool statement) {
    std::string text;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        if (pattern[i] != '$' && pattern[i] != '@') {
            text += pattern[i];
            continue;
        }
        const bool cause = statement || pattern[i] == '@';
        const SentencePart& part = *chosen[static_cast<std::size_t>(pattern[++i] - '1')];
        text += cause ? part.cause : part.effect;
    }
    if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
    return text;
}

}  // namespace

std::uint32_t sentence_pair_limit() { return kTemplateCount * smallest_template(); }

TextPair sentence_pair(std::uint64_t seed, std::uint32_t index) {
    MILLRACE_ASSERT(index < sentence_pair_limit(), "no such sentence pair");
    const std::uint32_t number = index % kTemplateCount;
    const Template& chosen = kTemplates[number];
    // A bijection of the template's combinations: no two positions give the same sentence.
    std::uint32_t combination = base::shuffled_index(seed, number, index / kTemplateCount, chosen.combinations());
    Chosen parts{};
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
        const auto count = static_cast<std::uint32_t>(chosen.slots[slot].size());
        parts[slot] = &chosen.slots[slot][combination % count];
        combination /= count;
    }
    return {expand(chosen.statement, parts, true), expand(chosen.consequence, parts, false)};
}

}  // namespace millrace::data
