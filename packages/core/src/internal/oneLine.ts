/** A message of Schema, which may span lines, as an operator's log wants it. */
export const oneLine = (message: string): string => message.replaceAll(/\s*\n\s*/g, " ")
