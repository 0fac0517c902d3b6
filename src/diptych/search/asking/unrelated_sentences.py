"""Sentences about as many different things as possible: what any one collection has next to nothing of."""

SENTENCES = tuple(
    sentence.strip()
    for sentence in """
an astronaut floats above the earth in a white suit
a submarine surfaces between sheets of ice
a surgeon bends over a patient under bright lamps
a violin lies in its open case on a velvet cloth
the control room of a power station with rows of dials
a potter shapes a bowl on a turning wheel
an oil rig burns off gas at dusk
a chess board with only four pieces left
a beekeeper lifts a frame covered with bees
two fencers in white cross their blades
an empty courtroom with wooden benches
a blacksmith hammers glowing iron
a microscope picture of a drop of pond water
a space shuttle on its launch pad
a ballet dancer ties her shoe before the curtain rises
a container ship is loaded in a harbour at night
an old typewriter with a sheet of paper in it
a weather map with isobars and fronts
a dentist shows an x-ray to a patient
a sheet of music with pencil notes
shelves of medicine in a pharmacy
a tunnel boring machine under a city
a falcon sits on a leather glove
an igloo under the northern lights
a stained glass window with a saint
a carpenter planes a long board
the skeleton of a dinosaur in a museum hall
a cable car above a deep valley
a welder behind a shower of sparks
a bonsai tree on a lacquered table
a steam locomotive fills a station with smoke
the inside of a piano with its hammers and strings
a lighthouse in a storm
a row of wind turbines in a wheat field
a market stall with heaps of spices
an octopus hides in a clay jar
an escalator in an empty airport
a judge wearing a wig
a printed circuit board seen from above
a sumo wrestler throws salt
a vineyard on a steep hill
a harvester cuts a field of corn
a coin collection in a glass case
an avalanche rolls down a mountain
a barber shaves an old man
a telescope dome opens at night
camels kneel beside a desert tent
a seamstress works at a sewing machine
a candle maker dips wicks in wax
a fire engine with its ladder raised
a jellyfish glows in black water
a stack of old newspapers tied with string
a hot air balloon is being filled
a glassblower turns a bubble of molten glass
a penguin feeds its chick
a wedding cake with seven tiers
a subway map on a tiled wall
a knight in armour on a horse with a long lance
an hourglass beside a skull and a book
a crane lifts a steel beam
a scuba diver swims over a wreck
a bakery shelf full of round loaves
a road sign pierced by bullets
a drummer hidden behind cymbals
a terraced rice field filled with water
a cockpit with all its instruments lit
a cave painting of running bison
a tailor measures a sleeve
a tortoise eats a leaf of lettuce
a nuclear cooling tower behind a village
a puppet theatre with a crocodile
a fencing mask hangs on a hook
an iceberg with a blue crack
a bank vault stands open
a gondola passes under a bridge
the rings of a planet photographed by a probe
a bowl of noodles with an egg
a snake sheds its skin
a jockey in green silk leans over the neck of a horse
a parliament votes by raising hands
a graph of prices that falls to the right
a shoe repair shop full of leather
a windmill with torn sails
a goalkeeper stretches for a ball in the rain
a mosque with four minarets at noon
a frozen waterfall with a climber on it
a baby sleeps in an incubator
a blackboard covered with equations
an elephant washes in a muddy river
a wall of safe deposit boxes
a spider wraps a fly in silk
a rowing boat tied to a rotten post
a neon sign that says open
a mechanic lies under a lorry
an auctioneer holds up a hammer
a plate with the bones of a fish
a protest march with red banners
a hedgehog curled up in autumn leaves
a greenhouse full of orchids
an old man plays the accordion
a factory line that fills bottles
a tornado touches the plain
a swimming pool without water
a family tree painted on parchment
a rocket engine on a test stand
a cup of coffee with a leaf drawn in the foam
a statue without arms
a geyser erupts in front of tourists
a hospital corridor at night
a hand holds a fan of playing cards
a locksmith files a key
a volcano throws ash into the sky
an assembly of robots welding car bodies
a sheepdog drives a flock through a gate
a drawbridge opens for a sailing ship
a lion yawns on a rock
a television studio with three cameras
a nest with four speckled eggs
a bus stop covered with snow
an archaeologist brushes soil from a vase
a totem pole carved with a raven
a sack race at a school
the surface of the moon with footprints
a xylophone with coloured bars
a bathtub full of ice cubes
a monk copies a manuscript
two cranes dance in shallow water
a parking garage with yellow lines
a map of an island with a red cross
a cactus with one pink flower
an ambulance in front of a hotel
a man carves a pumpkin
a diamond held with tweezers
a library with ladders on rails
a truck stuck in deep mud
a choir in black robes sings
a sundial on a church wall
a bowling ball hits the pins
a whale breaks through the surface
a pair of glasses on an open dictionary
a sawmill with stacked trunks
a peacock spreads its tail
a fortune teller with a glass ball
a radio tower with red lights
a dripping tap above a stained sink
a gymnast hangs from two rings
an ant carries a piece of leaf
a jar of pickled cucumbers
a soldier polishes his boots
a moth on a window at night
""".strip().splitlines()
)
