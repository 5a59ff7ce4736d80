// Ids of tool calls as chat templates want them.
//
// A client sends back the ids that some server gave, of any form. Mistral's
// templates refuse all but nine letters and digits.
#ifndef EVERWARM_MODELS_CALL_IDS_H_
#define EVERWARM_MODELS_CALL_IDS_H_

#include <string>

namespace everwarm::models {

// The id itself where it is nine ASCII letters and digits, else nine that
// depend on it alone, so that the same history gives the same prompt at any
// time.
std::string NineLetterCallId(const std::string& id);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_CALL_IDS_H_
